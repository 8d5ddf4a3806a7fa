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
    const std::vector<KvOptions> all{{KvType::tq4, KvType::tq4}, {KvType::q8_0, KvType::tq3t}, {KvType::f32, KvType::a4_32}};
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

TEST_CASE("with a window, a prompt whose beginning is found goes on as from the codes alone, and ends with a full window") {
    const SmallModel model;
    Device device;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    for (const uint32_t length : {310u, 400u, 620u}) check_found_with_window(model, make, length);
}
