// Conversations that make a KV cache grow, compared with the same ones in a cache that has its full size from the start.
#pragma once
#include "model/formats/gguf.h"
#include "model/forward.h"
#include "model/weights/weights.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <cstring>
#include <doctest/doctest.h>
#include <functional>
#include <random>

namespace tq {

constexpr uint32_t growth_context = 101; // odd: the last capacity is not

// Two layers, eight query heads on four kv heads.
struct GrowthModel {
    test::TemporaryFile path;
    Config config = test::small_config();
    std::unique_ptr<ModelFile> file;
    Weights weights;

    GrowthModel() {
        config.num_attention_heads = 8;
        config.num_key_value_heads = 4;
        test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 3, {}});
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        weights = read_weights(*file, config);
    }
};

// All kinds of storage: words alone, one scale, two, a scale for each group of 32, and layers that differ.
inline std::vector<KvOptions> growth_types() {
    std::vector<KvOptions> all{
        {KvType::tq4, KvType::f32, RotationKind::wht, KvOptions().scale_rule, parse_kv_layers("1=tq2/q8_0")}};
    for (const KvType type : {KvType::f32, KvType::f16, KvType::tq4, KvType::tq3q, KvType::a4_32, KvType::q8_0})
        all.push_back({type, type});
    return all;
}

// The same, and a window with codes; a window is not part of what is saved and repeated.
inline std::vector<KvOptions> growth_types_and_window() {
    std::vector<KvOptions> all = growth_types();
    all.push_back({KvType::tq8, KvType::tq8});
    all.back().window = 5;
    return all;
}

inline ForwardOptions growth_options(const KvOptions& kv, uint32_t step) {
    return {.kv = kv, .context_size = growth_context, .threads = 1, .batch_size = 8, .cache_step = step};
}

inline std::vector<uint32_t> random_ids(std::mt19937& random, uint32_t count) {
    std::vector<uint32_t> ids(count);
    for (uint32_t& id : ids) id = uint32_t(random() % 300);
    return ids;
}

// Runs the same tokens on both and compares the logits bit for bit.
inline void check_same(Forward& a, Forward& b, std::span<const uint32_t> ids) {
    REQUIRE(a.position() == b.position());
    const auto logits = a.run(ids), expected = b.run(ids);
    REQUIRE(logits.size() == expected.size());
    REQUIRE(std::memcmp(logits.data(), expected.data(), logits.size_bytes()) == 0);
}

// `make`: makes a Forward with the given options. Runs blocks of uneven sizes, from one token to several batches, and
// truncations anywhere, until the context is full.
inline void check_growth(const std::vector<KvOptions>& all_types,
                         const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make) {
    for (const KvOptions& kv : all_types) {
        const std::string types = describe(kv);
        CAPTURE(types);
        std::mt19937 random(7);
        const auto whole = make(growth_options(kv, 0)), grown = make(growth_options(kv, 2));
        CHECK(whole->capacity() == growth_context + 1);
        CHECK(grown->capacity() == 8);
        uint32_t growths = 0;
        while (grown->position() < growth_context) {
            const uint32_t before = grown->capacity(), left = growth_context - grown->position();
            if (random() % 4 == 0) {
                const uint32_t kept = grown->position() - uint32_t(random() % std::min(grown->position() + 1, 12u));
                grown->truncate(kept);
                whole->truncate(kept);
                CHECK(grown->capacity() == before); // it never shrinks
                continue;
            }
            const uint32_t count = std::min(left, random() % 3 == 0 ? 1u : 1 + uint32_t(random() % 29));
            check_same(*grown, *whole, random_ids(random, count));
            REQUIRE(grown->capacity() >= grown->position());
            growths += grown->capacity() > before ? 1 : 0;
        }
        CHECK(growths >= 4);
        CHECK(grown->capacity() == growth_context + 1);
    }
}

// A cache that grows while it repeats gives the logits of a full-sized one; so do tokens after that, and truncation.
inline void check_repeat(const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make) {
    for (const KvOptions& kv : growth_types_and_window()) {
        const std::string types = describe(kv);
        CAPTURE(types);
        std::mt19937 random(11);
        const auto whole = make(growth_options(kv, 0)), grown = make(growth_options(kv, 2));
        check_same(*grown, *whole, random_ids(random, 6));
        for (Forward* forward : {whole.get(), grown.get()}) {
            forward->repeat_to(61);
            CHECK(forward->position() == 61);
            CHECK(forward->capacity() >= 61);
        }
        check_same(*grown, *whole, random_ids(random, 1));
        check_same(*grown, *whole, random_ids(random, 19));
        for (Forward* forward : {whole.get(), grown.get()}) forward->truncate(30);
        check_same(*grown, *whole, random_ids(random, 4));
    }
}

} // namespace tq
