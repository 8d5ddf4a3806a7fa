// The CPU path's cache grows with the conversation, which does not change the logits.
#include "base/error.h"
#include "base/system_memory.h"
#include "model/cpu/forward.h"
#include "model/cpu/kernels.h"
#include "model/host/cache.h"
#include "tests/support/growth.h"
#include "tests/support/skip.h"
#include <algorithm>

using namespace tq;

TEST_CASE("capacities grow by half, in whole steps, and end with the context") {
    const ForwardOptions options{.context_size = 9999};
    CHECK(options.first_capacity() == 1024);
    CHECK(options.next_capacity(1024, 1025) == 1536);
    CHECK(options.next_capacity(1536, 1537) == 2304);
    CHECK(options.next_capacity(2304, 2305) == 3584); // 3456 in whole steps
    CHECK(options.next_capacity(1024, 5000) == 5120);
    CHECK(options.next_capacity(7000, 7001) == 10000);
    CHECK(options.last_capacity() == 10000);
    CHECK(ForwardOptions{.context_size = 77}.first_capacity() == 78);
    CHECK(ForwardOptions{.context_size = 77, .cache_step = 0}.first_capacity() == 78);
    CHECK(ForwardOptions{.context_size = 9999, .cache_step = 7}.first_capacity() == 32); // even
    CHECK(ForwardOptions{.context_size = 1u << 31}.next_capacity(1u << 31, 1u << 31) == 1u << 31);
}

TEST_CASE("a cache that grows gives the logits of one that was whole") {
    const GrowthModel model;
    check_growth(growth_types_and_window(),
                 [&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); });
}

TEST_CASE("a block of a few tokens gives each the logits that it would get alone") {
    const GrowthModel model;
    for (const KvOptions& kv : growth_types_and_window()) {
        CAPTURE(describe(kv));
        std::mt19937 random(8);
        const auto alone = make_cpu_forward(model.config, model.weights, growth_options(kv, 2)),
                   together = make_cpu_forward(model.config, model.weights, growth_options(kv, 2));
        REQUIRE(growth_options(kv, 2).batch_size <= cpu::few_tokens);
        for (const uint32_t count : {1u, 7u, 8u, 2u, 20u, 3u, 31u}) {
            const std::vector<uint32_t> ids = random_ids(random, count);
            for (uint32_t i = 0; i + 1 < count; i++) alone->run(std::span(ids).subspan(i, 1));
            const auto logits = alone->run(std::span(ids).last(1)), got = together->run(ids);
            REQUIRE(std::memcmp(logits.data(), got.data(), logits.size_bytes()) == 0);
        }
    }
}

TEST_CASE("what is stored is repeated word by word") {
    for (const KvOptions& kv : growth_types()) {
        const host::CacheSide side(kv.codec(0, 2, KvSide::key, 64), 3, 41);
        std::mt19937 random(1);
        for (uint32_t head = 0; head < 3; head++)
            for (uint32_t position = 0; position < 41; position++) {
                for (uint32_t& word : side.codes(head, position)) word = uint32_t(random());
                for (uint16_t& scale : side.scales(head, position)) scale = uint16_t(random());
            }
        std::vector<host::LayerCache> layers;
        layers.push_back({{side.codec, 3, 41}, {side.codec, 3, 41}});
        for (const host::CacheSide* to : {&layers[0].k, &layers[0].v}) {
            std::copy_n(side.codes(0, 0).data(), size_t(3) * 41 * side.codec.words(), to->codes(0, 0).data());
            if (side.codec.scales() > 0)
                std::copy_n(side.scales(0, 0).data(), size_t(3) * 41 * side.codec.scales(), to->scales(0, 0).data());
        }
        host::repeat(layers, 6, 40);
        for (const host::CacheSide* to : {&layers[0].k, &layers[0].v})
            for (uint32_t head = 0; head < 3; head++)
                for (uint32_t position = 0; position < 41; position++) {
                    const uint32_t from = position < 40 ? position % 6 : position; // positions from 40 on are unchanged
                    REQUIRE(std::ranges::equal(to->codes(head, position), side.codes(head, from)));
                    REQUIRE(std::ranges::equal(to->scales(head, position), side.scales(head, from)));
                }
    }
    const GrowthModel model;
    check_repeat([&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); });
}

TEST_CASE("a cache that would outgrow the machine is an error with the numbers, and what it holds stays") {
    Config config = test::small_config(); // 2 MiB of cache per token
    config.num_hidden_layers = 16;
    config.num_attention_heads = config.num_key_value_heads = 64;
    config.head_dim = 256;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 3, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, config);
    const KvOptions kv{KvType::f32, KvType::f32};
    const uint64_t too_many = physical_memory_bytes() / kv_bytes_per_token(config, kv) + 1;
    if (too_many > 1u << 20) {
        test::skip("this machine has too much memory to be filled");
        return;
    }
    const uint32_t context = uint32_t(too_many) + 8;
    const auto forward = make_cpu_forward(config, weights, {.kv = kv, .context_size = context, .cache_step = 2}),
               other = make_cpu_forward(config, weights, {.kv = kv, .context_size = 32, .cache_step = 2});
    std::mt19937 random(1);
    check_same(*forward, *other, random_ids(random, 5));
    CHECK_THROWS_WITH_AS(forward->run(std::vector<uint32_t>(too_many, 1)),
                         doctest::Contains(fmt::format("holds 5 tokens, and for {} more", too_many).c_str()), OutOfMemory);
    CHECK(forward->position() == 5);
    CHECK(forward->capacity() == 8);
    check_same(*forward, *other, random_ids(random, 3));
    check_same(*forward, *other, random_ids(random, 3)); // and it can still grow
}
