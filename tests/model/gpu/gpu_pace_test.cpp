// A prompt on the device in short blocks: as many as its pace allows, and the same logits bit for bit.
#include "base/thread_pool.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device.h"
#include "tests/support/small_model.h"
#include <cmath>
#include <set>

using namespace tq;

namespace {

struct Answer {
    std::vector<float> logits;
    std::set<uint32_t> steps; // the steps after which the progress was called
};

Answer run(Forward& forward, const std::vector<uint32_t>& prompt) {
    Answer out;
    const std::span<const float> logits = forward.run(prompt, [&](uint32_t done, uint32_t) {
        out.steps.insert(done);
        return true;
    });
    out.logits.assign(logits.begin(), logits.end());
    return out;
}

// The largest difference, relative to the largest logit.
double difference(const Answer& a, const Answer& b) {
    double largest = 0, worst = 0;
    for (size_t i = 0; i < a.logits.size(); i++) {
        largest = std::max(largest, std::abs(double(a.logits[i])));
        worst = std::max(worst, std::abs(double(a.logits[i]) - double(b.logits[i])));
    }
    return worst / largest;
}

} // namespace

TEST_CASE("blocks that are cut short for time give the same logits") {
    const SmallModel model;
    Device device;
    const gpu::Tuning tuning = gpu::tuning_for(device.capabilities());
    ThreadPool pool(1);
    const auto weights = std::make_shared<const gpu::DeviceWeights>(
        gpu::upload_weights(device, pool, model.weights, tuning.weight_interleave, {}));
    std::mt19937 random(7);
    const auto prompt = random_ids(random, 80), next = random_ids(random, 10);
    for (const KvOptions& kv : {KvOptions{KvType::tq4, KvType::tq4}, KvOptions{KvType::f32, KvType::f32}}) {
        ForwardOptions options = small_options(kv);
        options.batch_size = 40;
        const auto whole = make_gpu_forward(device, model.config, weights, options, tuning, 1e9),
                   hurried = make_gpu_forward(device, model.config, weights, options, tuning, 1e-12);
        const Answer expected = run(*whole, prompt), found = run(*hurried, prompt);
        CHECK(expected.steps.contains(40));
        CHECK(!expected.steps.contains(42));
        for (uint32_t done = 2; done <= 80; done += 2) CHECK(found.steps.contains(done));
        CHECK(std::ranges::equal(found.logits, expected.logits));
        // A short block's attention is split, and its splits differ when the block is cut: equal except for rounding.
        const Answer after = run(*hurried, next), expected_after = run(*whole, next);
        CHECK(difference(expected_after, after) < (kv.k == KvType::f32 ? 1e-5 : 2e-2)); // a code may change
        CHECK(hurried->position() == 90);
    }
}
