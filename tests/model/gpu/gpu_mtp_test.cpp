// Drafts on a device: states with pending tokens are those of plain decoding, and a perfect head is right.
#include "model/gpu/forward.h"
#include "tests/support/device_kernels.h"
#include "tests/support/drafts.h"

using namespace tq;
using namespace tq::test;

namespace {

ForwardOptions draft_options(uint32_t pending, KvOptions kv = {KvType::tq4, KvType::tq4}) {
    ForwardOptions options = hybrid_options(true, std::move(kv));
    options.pending = pending;
    return options;
}

} // namespace

TEST_CASE("drafts that are taken back leave the bits of plain decoding, on a device") {
    Device device;
    for (const char* type : {"qwen3_5", "qwen3_next"})
        for (const DeviceKernels& kernels : kernels_to_check(device)) {
            CAPTURE(type);
            CAPTURE(kernels.name());
            const Hybrid model(type);
            const auto drafted = kernels.make(device, model.config, model.weights, draft_options(4)),
                       plain = kernels.make(device, model.config, model.weights, draft_options(0));
            check_pending(*drafted, *plain, 3, 40);
        }
}

TEST_CASE("the states and caches of a model with a head for multi-token prediction are the same bits on a device with drafts") {
    Device device;
    KvOptions kv{KvType::tq4, KvType::f16};
    kv.window = 32;
    const Hybrid model("qwen3_5_moe", GgmlType::Q8_0, {});
    const auto drafted = make_gpu_forward(device, model.config, model.weights, draft_options(4, kv)),
               plain = make_gpu_forward(device, model.config, model.weights, draft_options(0, kv));
    check_pending(*drafted, *plain, 7, 40);
    CHECK(acceptance(*drafted, ids_of(2, 50), 4, 30) < 0.5); // its head is random
}

TEST_CASE("a head that is perfect by construction is always right on a device") {
    Device device;
    for (const KvType type : {KvType::tq4, KvType::f16}) {
        const Hybrid model("qwen3_5", GgmlType::F16, {.tied = false, .perfect_mtp = true});
        const auto forward = make_gpu_forward(device, model.config, model.weights, draft_options(3, {type, type}));
        CHECK(acceptance(*forward, ids_of(2, 50), 3, 30) == 1);
    }
}

TEST_CASE("drafts that the device samples itself are those that the host finds in the logits") {
    Device device;
    Config config = small_config(*find_model_type("qwen3_5"));
    config.vocab_size = likely_ids + 3000;
    const Hybrid model(config, GgmlType::Q8_0, {});
    const auto forward = make_gpu_forward(device, model.config, model.weights, draft_options(4));
    for (uint32_t length = 5; length < 40; length += 6)
        for (const DraftIds ids : {DraftIds::all, DraftIds::likely}) {
            CAPTURE(length);
            forward->truncate(0);
            forward->run(ids_of(length, length));
            const DraftStart start{0, length};
            uint32_t seen = 0;
            const auto by_host = forward->draft({&start, 1}, 4, ids, [&](size_t, uint32_t, std::span<const float>) { seen++; }),
                       by_device = forward->draft({&start, 1}, 4, ids);
            CHECK(seen == 4);
            CHECK(by_device == by_host);
            CHECK(forward->position() == length);
        }
}

TEST_CASE("likely drafts are the most probable of the first ids, on a device") {
    Device device;
    Config config = small_config(*find_model_type("qwen3_5"));
    config.vocab_size = likely_ids + 3000;
    const Hybrid model(config, GgmlType::Q8_0, {});
    check_likely_drafts(*make_gpu_forward(device, model.config, model.weights, draft_options(3)));
}
