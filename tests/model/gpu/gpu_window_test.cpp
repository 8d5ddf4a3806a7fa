// The full-precision window on the device: the CPU's logits, whatever came before.
#include "model/cpu/forward.h"
#include "model/gpu/cache.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/tuning_file.h"
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"
#include "tests/support/small_model.h"
#include "tests/support/stored_pages.h"

using namespace tq;

namespace {

KvOptions with_window(KvTypes types, uint32_t tokens, RotationKind rotation = RotationKind::wht) {
    KvOptions kv{types.k, types.v, rotation};
    kv.window = tokens;
    return kv;
}

// Runs the same tokens on both.
struct Both {
    std::unique_ptr<Forward> device, cpu;
    double limit;

    void run(std::span<const uint32_t> ids) { CHECK(relative_error(device->run(ids), cpu->run(ids)) <= limit); }
    void checkpoint() {
        device->cache().checkpoint(0);
        cpu->cache().checkpoint(0);
    }
    void truncate(uint32_t n) {
        device->truncate(n);
        cpu->truncate(n);
    }
};

} // namespace

TEST_CASE("the CPU's logits, through blocks, single tokens, growth and cuts") {
    const SmallModel model;
    Device device;
    // With enough bits that a code on the other side of a threshold makes no visible difference.
    for (const KvOptions& kv : {with_window({KvType::tq8, KvType::tq8}, 5), with_window({KvType::f16, KvType::q8_0}, 12),
                                with_window({KvType::tq6, KvType::tq8}, 3, RotationKind::haar)}) {
        const std::string types = describe(kv);
        CAPTURE(types);
        const ForwardOptions options = small_options(kv);
        Both both{make_gpu_forward(device, model.config, model.weights, options),
                  make_cpu_forward(model.config, model.weights, options), std::max(2e-3, own_kernels(device).limit())};
        std::mt19937 random(5);
        for (const uint32_t count : {1u, 1u, 9u, 19u}) both.run(random_ids(random, count));
        both.checkpoint();
        for (const uint32_t count : {11u, 1u, 1u}) both.run(random_ids(random, count));
        both.truncate(40); // a few tokens
        both.run(random_ids(random, 1));
        both.run(random_ids(random, 20));
        both.truncate(30); // many tokens: to the checkpoint
        for (const uint32_t count : {1u, 3u, 1u, 17u}) both.run(random_ids(random, count));
    }
}

TEST_CASE("where the window holds all tokens, the codes are not seen") {
    const SmallModel model;
    Device device;
    std::mt19937 random(6);
    const auto prompt = random_ids(random, 37), next = random_ids(random, 1);
    const auto make = [&](const KvOptions& kv) {
        return make_gpu_forward(device, model.config, model.weights, small_options(kv));
    };
    const auto all = make(with_window({KvType::tq2, KvType::tq2}, 101)), plain = make({KvType::f16, KvType::f16});
    for (const auto& ids : {prompt, next}) CHECK(relative_error(all->run(ids), plain->run(ids)) < 3e-3);
}

TEST_CASE("tokens sampled ahead on the device and taken back leave no trace") {
    const SmallModel model;
    Device device;
    const ForwardOptions options = small_options(with_window({KvType::tq2, KvType::tq2}, 7));
    const auto ahead = make_gpu_forward(device, model.config, model.weights, options),
               plain = make_gpu_forward(device, model.config, model.weights, options);
    std::mt19937 random(7);
    const auto prompt = random_ids(random, 33), next = random_ids(random, 1);
    const std::vector<uint32_t> words(SAMPLING_STEPS, 12345);
    DeviceSampling sampling{};
    sampling.settings = {1, 1, 0xffffffff, 0};
    sampling.random = words;
    ahead->run(prompt);
    plain->run(prompt);
    ahead->run_sampled(0, next[0], SAMPLING_STEPS, sampling);
    ahead->truncate(33);
    check_same(*ahead, *plain, next);
}

TEST_CASE("a prompt put back is attended to as codes") {
    const SmallModel model;
    Device device;
    const KvOptions kv = with_window({KvType::tq2, KvType::tq2}, 7);
    const auto saved = make_gpu_forward(device, model.config, model.weights, small_options(kv)),
               restored = make_gpu_forward(device, model.config, model.weights, small_options(kv));
    const auto coded =
        make_gpu_forward(device, model.config, model.weights, small_options(with_window({KvType::tq2, KvType::tq2}, 1)));
    std::mt19937 random(8);
    const auto prompt = random_ids(random, 33), next = random_ids(random, 1);
    saved->run(prompt);
    for (Forward* to : {restored.get(), coded.get()}) to->cache().restore(0, 33, pages_of_slot(saved->cache(), 0));
    check_same(*restored, *coded, next); // its window holds only its own token
}

TEST_CASE("memory for windows is planned, and more than a binding holds is refused") {
    const SmallModel model;
    Device device;
    const KvOptions kv = with_window({KvType::tq4, KvType::tq4}, 64), none{KvType::tq4, KvType::tq4};
    const auto planned = [&](const KvOptions& of) {
        return gpu::plan_memory(device, model.config, model.weights, small_options(of)).kv_cache;
    };
    const gpu::Tuning tuning = gpu::tuning_for(device.capabilities());
    const uint32_t block = gpu::with_batch_size(small_options(kv), tuning).batch_size;
    const uint64_t vectors = 4 * (block + 2 * (64 + SAMPLING_STEPS));
    CHECK(planned(kv) - planned(none) == 2 * ((vectors * model.config.head_dim * 2 + 255) / 256 * 256));
    gpu::DeviceStorage cache(device, model.config, kv, 1);
    CHECK_THROWS_WITH_AS(cache.keep_window(device, 1, 1u << 22, 8), doctest::Contains("--kv-window"), Error);
}
