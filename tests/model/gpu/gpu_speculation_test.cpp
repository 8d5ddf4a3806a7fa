// Speculative decoding on a device: the answers of plain decoding, sampled by the host or by the device.
#include "model/engine/speculation/draft_model.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning.h"
#include "runtime/device.h"
#include "tests/support/speculation.h"
#include <limits>

using namespace tq;

namespace {

const SmallModel& model() {
    static const SmallModel model;
    return model;
}

// Makes passes with the kernels of a GPU, which samples by itself.
MakeForward with_gpu_kernels(Device& device) {
    Capabilities gpu = device.capabilities();
    gpu.type = DeviceType::discrete;
    gpu::Tuning tuning = gpu::choose_tuning(gpu);
    tuning.matmul_coopmat = false;
    tuning.attention_coopmat_rows = 0;
    tuning.short_block = 16;
    ThreadPool pool(1);
    const auto weights = std::make_shared<const gpu::DeviceWeights>(
        gpu::upload_weights(device, pool, model().weights, tuning.weight_interleave, {}));
    return [=, &device](const ForwardOptions& options) {
        return make_gpu_forward(device, model().config, weights, options, tuning, std::numeric_limits<double>::infinity());
    };
}

} // namespace

TEST_CASE("drafts that are right, wrong and both change nothing") {
    Device device;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model().config, model().weights, options);
    };
    check_answers_with_drafts(make, {{KvType::tq4, KvType::tq4}, with_window(KvType::q8_0, KvType::tq3t, 5)}, true,
                              {ways_to_sample()[2]});
}

TEST_CASE("nor do they where the device samples, and a draft model there is right where it is the model itself") {
    Device device;
    const MakeForward make = with_gpu_kernels(device);
    check_answers_with_drafts(make, {with_window(KvType::tq4, KvType::tq4, 40)}, true, {ways_to_sample()[1]});

    ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 1);
    options.speculative = true;
    const auto plain = make(options), drafting = make(options);
    REQUIRE(plain->max_sampled() > 0);
    REQUIRE(plain->max_separate_rows() == 8);
    std::mt19937 random(3);
    const Ids prompt = random_ids(random, 40);
    for (const SamplerOptions& sampling : {ways_to_sample()[0], ways_to_sample()[2]}) {
        Speculation speculation(std::make_unique<DraftModel>(make(options), std::vector<bool>(model().config.vocab_size)),
                                {.adaptive = false});
        const Answered got = answer(*drafting, sampling, prompt, 20, &speculation);
        check_equal(got, answer(*plain, sampling, prompt, 20, nullptr));
        CHECK(got.timings.drafted_tokens > 0);
        if (sampling.temperature == 0) CHECK(got.timings.accepted_tokens == got.timings.drafted_tokens);
    }
}
