// Sessions on a device with a prefix cache: warm is cold, bit for bit, with the blocks of a device.
#include "model/gpu/forward.h"
#include "tests/support/prefix_sessions.h"

using namespace tq;

TEST_CASE("warm is cold") {
    const SmallModel model;
    Device device;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    const std::vector<KvOptions> all{{KvType::tq4, KvType::tq4}, {KvType::q8_0, KvType::tq3t}, {KvType::f32, KvType::q4_0}};
    check_warm_is_cold(model, make, all, {300, 310, 301, 700, 290, 258}, false);
    check_warm_is_cold(model, make, {all[0]}, {300, 310, 301, 700, 290, 258}, true);
    check_warm_is_cold(model, make, {all[0]}, {300, 310, 301, 700, 290, 258, 321, 385}, false, 64); // slices are evened
}

TEST_CASE("a prompt of less than a block is found again, but for as many tokens as make a slice") {
    const SmallModel model;
    Device device;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    const KvOptions kv{KvType::tq4, KvType::tq4};
    const PrefixPlace place{model, make, {}};
    const auto forward = make(prefix_options(kv, false, 0));
    const BlockKernels kernels = forward->block_kernels();
    REQUIRE(kernels.evens_slices());
    const auto cache = place.open(*forward, kv);
    std::mt19937 random(6);
    const Ids prompt = random_ids(random, kernels.many + 40);
    for (const uint32_t found : {0, 40}) {
        Session session(*forward, cache.get(), Reuse::cold);
        forward->truncate(0);
        Sampler sampler({.temperature = 0}, {});
        GenerateOptions options;
        options.max_tokens = 1;
        session.generate(prompt, sampler, options);
        CHECK(session.timings().reused_tokens == found);
    }
}

TEST_CASE("with a window, and of a hybrid, warm is cold, too, bit for bit") {
    Device device;
    const std::vector<uint32_t> lengths{300, 310, 301, 700, 290, 258};
    const SmallModel model;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    for (const bool deterministic : {false, true}) check_warm_is_cold(model, make, windowed_types(), lengths, deterministic);
    check_warm_is_cold(model, make, {windowed_types()[1]}, lengths, false, 64); // slices are evened
    const SmallModel hybrid(test::small_config(*find_model_type("qwen3_5")));
    const MakeForward make_hybrid = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, hybrid.config, hybrid.weights, options);
    };
    const std::vector<KvOptions> all{{KvType::tq4, KvType::tq4}, with_window(KvType::tq4, KvType::tq3t, 64)};
    for (const bool deterministic : {false, true}) check_warm_is_cold(hybrid, make_hybrid, all, lengths, deterministic);
    check_warm_is_cold(hybrid, make_hybrid, {all[0]}, lengths, false, 64);
}
