// Converts sessions to files of their cache and back.
#pragma once
#include "model/engine/session.h"
#include "model/files/calibration.h"
#include "model/files/prompt_cache.h"
#include "tests/support/small_model.h"

namespace tq {

inline CacheOwner owner_of(const SmallModel& model, const KvOptions& kv) {
    return {model.config, kv, model_fingerprint(model.config, model.weights), "a model", "this test"};
}

inline std::string file_bytes(const CacheOwner& owner, Session& session) {
    std::string bytes;
    write_prompt_cache(
        owner, session.cached_ids(), session.cold_tokens(),
        [&](uint32_t position, std::span<std::byte> page) { session.read_page(position, page); }, session.save_slot(),
        [&](std::span<const std::byte> piece) { bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size()); });
    CHECK(bytes.size() == prompt_cache_bytes(owner, uint32_t(session.cached_ids().size()), session.save_slot()));
    return bytes;
}

inline void load(const std::string& bytes, const CacheOwner& owner, Session& session) {
    const test::TemporaryFile path(bytes);
    const PromptCacheFile file(path.path(), owner);
    const uint32_t tokens = std::min(uint32_t(file.ids().size()), session.forward().context_size());
    session.restore(
        {file.ids().begin(), file.ids().begin() + tokens}, std::min(file.cold(), tokens),
        [&](uint32_t position, std::span<std::byte> page) { file.read(position, page); },
        tokens == file.ids().size() ? file.beside(session.forward().cache().shape().window_tokens) : SavedSlot());
}

// A calibration with random values.
inline KeyConditioning random_calibration(const Config& config, uint32_t seed, bool with_scales = true) {
    std::mt19937 random(seed);
    KeyCalibration keys{config.num_hidden_layers, config.num_key_value_heads, config.head_dim, {}, {}};
    for (uint32_t i = 0; i < keys.layers * keys.kv_heads * keys.head_dim; i++) {
        keys.scales.push_back(with_scales ? std::exp2(float(random() % 1000) / 250 - 2) : 1.0f);
        keys.means.push_back(float(random() % 1000) / 250 - 2);
    }
    KeyConditioning out = parse_key_conditioning("keys.safetensors");
    out.calibration = std::make_shared<const KeyCalibration>(std::move(keys));
    return out;
}

// Every kind of storage, layers that differ, either rotation, each kind of conditioning.
inline std::vector<KvOptions> saved_types(const Config& config) {
    std::vector<KvOptions> all = storage_types();
    all.push_back({KvType::tq4, KvType::tq4});
    all.push_back({KvType::tq3t, KvType::q4_0, RotationKind::wht, KvOptions().scale_rule, parse_kv_layers("-1=f16/tq6")});
    all.push_back({KvType::tq3, KvType::bf16, RotationKind::haar, ScaleRule::norm});
    all.push_back({KvType::tq4, KvType::tq3t});
    all.back().conditioning = parse_key_conditioning("norms");
    all.push_back({KvType::tq4, KvType::f16});
    all.back().conditioning = random_calibration(config, 5);
    all.push_back({KvType::tq4, KvType::tq4});
    all.back().window = 16;
    return all;
}

// A session that is saved and loaded continues as if it had not been, bit for bit, whatever the target cache held before: with
// one more token, with several, and after a truncation.
inline void check_round_trips(const SmallModel& model, const std::vector<KvOptions>& all_types,
                              const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make) {
    for (const KvOptions& kv : all_types) {
        const std::string types = describe(kv);
        CAPTURE(types);
        const CacheOwner owner = owner_of(model, kv);
        std::mt19937 random(13);
        const auto saved = make(small_options(kv)), loaded = make(small_options(kv));
        Session from(*saved), to(*loaded);
        from.prefill(random_ids(random, 37)); // odd
        to.prefill(random_ids(random, 5));
        load(file_bytes(owner, from), owner, to);
        REQUIRE(to.cached_ids() == from.cached_ids());
        REQUIRE(loaded->position() == 37);
        check_same(*loaded, *saved, random_ids(random, 1));
        check_same(*loaded, *saved, random_ids(random, 21));
        for (Forward* forward : {saved.get(), loaded.get()}) forward->truncate(kv.window == 0 ? 30 : 45);
        check_same(*loaded, *saved, random_ids(random, 4));
    }
}

} // namespace tq
