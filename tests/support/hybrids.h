// Small hybrids of every architecture, with random weights, and what tests run on them.
#pragma once
#include "model/files/formats/gguf.h"
#include "model/forward.h"
#include "tests/support/small_model.h"
#include <algorithm>
#include <array>

namespace tq::test {

constexpr std::array hybrid_types{"qwen3_5", "qwen3_5_moe", "qwen3_next"};

struct Hybrid {
    TemporaryFile path;
    Config config;
    std::unique_ptr<ModelFile> file;
    Weights weights;

    explicit Hybrid(const char* model_type, GgmlType type = GgmlType::Q8_0) : Hybrid(model_type, type, {}, false) {}
    // With a head for multi-token prediction.
    Hybrid(const char* model_type, GgmlType type, RandomModel random, bool mtp = true)
        : Hybrid(small_config(*find_model_type(model_type)), type, std::move(random), mtp) {}
    Hybrid(const Config& shape, GgmlType type, RandomModel random, bool mtp = true) {
        config = shape;
        config.nextn_predict_layers = mtp ? 1 : 0;
        random.config = config;
        random.type = type;
        random.seed = 3;
        write_random_model(path.path(), random);
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        config = read_config(*file, mtp);
        weights = read_weights(*file, config);
    }
};

inline ForwardOptions hybrid_options(bool deterministic, KvOptions kv = {KvType::tq4, KvType::tq4}) {
    return {.kv = kv, .context_size = 400, .slots = 4, .batch_size = 32, .deterministic = deterministic};
}

using Logits = std::vector<std::vector<float>>; // after each id

// Runs the ids in a slot, `step` at a time.
inline Logits run(Forward& forward, uint32_t slot, std::span<const uint32_t> ids, uint32_t step) {
    Logits out;
    for (size_t at = 0; at < ids.size(); at += step) {
        const Span span{slot, ids.subspan(at, std::min<size_t>(step, ids.size() - at)), Span::Logits::all};
        forward.run(std::span(&span, 1),
                    [&](size_t, uint32_t, std::span<const float> logits) { out.emplace_back(logits.begin(), logits.end()); });
    }
    return out;
}

inline std::vector<uint32_t> ids_of(uint32_t seed, uint32_t count) {
    std::mt19937 random(seed);
    return random_ids(random, count);
}

} // namespace tq::test
