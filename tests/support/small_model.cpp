#include "tests/support/small_model.h"
#include "model/files/formats/gguf.h"
#include <algorithm>
#include <cstring>

namespace tq {
namespace {

Config small_heads() {
    Config c = test::small_config();
    c.num_attention_heads = 8;
    c.num_key_value_heads = 4;
    return c;
}

// Returns whether one side's vectors repeat another side's.
bool is_repeated(StoredSide repeated, StoredSide from) {
    for (uint32_t head = 0; head < from.heads; head++)
        for (uint32_t p = 0; p < repeated.tokens; p++)
            if (!std::ranges::equal(repeated.codes_of(head, p), from.codes_of(head, p % from.tokens)) ||
                !std::ranges::equal(repeated.scales_of(head, p), from.scales_of(head, p % from.tokens)))
                return false;
    return true;
}

} // namespace

SmallModel::SmallModel() : SmallModel(small_heads()) {}

SmallModel::SmallModel(const Config& shape) : config(shape) {
    test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 3, {}});
    file = std::make_unique<ModelFile>(read_gguf(path.path()));
    weights = read_weights(*file, config);
}

std::vector<KvOptions> storage_types() {
    std::vector<KvOptions> all{
        {KvType::tq4, KvType::f32, RotationKind::wht, KvOptions().scale_rule, parse_kv_layers("1=tq2/q8_0")}};
    for (const KvType type : {KvType::f32, KvType::f16, KvType::tq4, KvType::tq3t, KvType::q4_0, KvType::q8_0, KvType::tq4u})
        all.push_back({type, values_beside(type)});
    return all;
}

std::vector<KvOptions> storage_types_and_window() {
    std::vector<KvOptions> all = storage_types();
    all.push_back({KvType::tq8, KvType::tq8});
    all.back().window = 5;
    return all;
}

ForwardOptions small_options(const KvOptions& kv) {
    return {.kv = kv, .context_size = small_context, .threads = 1, .batch_size = 8};
}

std::vector<uint32_t> random_ids(std::mt19937& random, uint32_t count) {
    std::vector<uint32_t> ids(count);
    for (uint32_t& id : ids) id = uint32_t(random() % 300);
    return ids;
}

void check_same(Forward& a, Forward& b, std::span<const uint32_t> ids) {
    REQUIRE(a.position() == b.position());
    const auto logits = a.run(ids), expected = b.run(ids);
    REQUIRE(logits.size() == expected.size());
    REQUIRE(std::memcmp(logits.data(), expected.data(), logits.size_bytes()) == 0);
}

void check_cuts(const std::vector<KvOptions>& all_types,
                const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make) {
    for (const KvOptions& kv : all_types) {
        const std::string types = describe(kv);
        CAPTURE(types);
        std::mt19937 random(7);
        ForwardOptions options = small_options(kv);
        options.context_size = 300;
        const auto plain = make(options), cut = make(options);
        while (plain->position() < options.context_size) {
            const uint32_t left = options.context_size - plain->position();
            const uint32_t count = std::min(left, random() % 3 == 0 ? 1u : 1 + uint32_t(random() % 29));
            check_same(*plain, *cut, random_ids(random, count));
            const uint32_t more = std::min(left - count, uint32_t(random() % 6)); // no more than a window survives
            if (more == 0) continue;
            cut->run(random_ids(random, more));
            cut->truncate(plain->position());
        }
    }
}

void check_repeat(const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make) {
    for (const KvOptions& kv : storage_types_and_window())
        for (const uint32_t length : {6u, 300u}) {
            const std::string types = describe(kv);
            CAPTURE(types);
            std::mt19937 random(11);
            ForwardOptions options = small_options(kv);
            options.context_size = 1000;
            const auto forward = make(options);
            forward->run(random_ids(random, length));
            const StoredSide k = forward->stored(1, KvSide::key), v = forward->stored(1, KvSide::value);
            forward->repeat_to(901);
            CHECK(forward->position() == 901);
            CHECK(is_repeated(forward->stored(1, KvSide::key), k));
            CHECK(is_repeated(forward->stored(1, KvSide::value), v));
            CHECK(forward->run(random_ids(random, 19)).size() == 320);
            forward->cache().cut(0, 30); // of a window nothing is left
            CHECK(forward->run(random_ids(random, 4)).size() == 320);
        }
}

} // namespace tq
