// Conditioned keys and values on the device: the CPU's logits, with caches of different conditioning on one copy of the weights.
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"
#include "tests/support/small_model.h"
#include "tests/support/stressed_model.h"
#include "tools/check/conformance/vectors/random.h"

using namespace tq;

namespace {

KeyConditioning random_calibration(const Config& c) {
    conformance::Random random{5};
    const uint32_t heads = c.num_hidden_layers * c.num_key_value_heads;
    const HeadConditions all = conformance::random_conditions(random, heads, c.head_dim);
    KeyConditioning out = parse_key_conditioning("random");
    out.calibration = std::make_shared<const KeyCalibration>(
        KeyCalibration{c.num_hidden_layers, c.num_key_value_heads, c.head_dim, all.factors, all.means});
    return out;
}

KvOptions conditioned(KvType k, RotationKind rotation, KeyConditioning by) {
    KvOptions kv{k, KvType::f32, rotation};
    kv.conditioning = std::move(by);
    return kv;
}

} // namespace

TEST_CASE("caches that are conditioned in different ways share weights, and give the CPU's logits") {
    const SmallModel model;
    Device device;
    ThreadPool pool;
    const gpu::Tuning tuning = gpu::tuning_for(device.capabilities());
    const auto weights = std::make_shared<const gpu::DeviceWeights>(
        gpu::upload_weights(device, pool, model.weights, tuning.weight_interleave, {}));
    const KeyConditioning keys = random_calibration(model.config), norms = parse_key_conditioning("norms");
    std::vector<KvOptions> all;
    for (const KeyConditioning& by : {KeyConditioning(), norms, keys})
        all.push_back(conditioned(KvType::f32, RotationKind::wht, by));
    for (const KvType type : {KvType::tq6, KvType::tq4t, KvType::q8_0}) all.push_back(conditioned(type, RotationKind::wht, keys));
    all.push_back(conditioned(KvType::tq6, RotationKind::haar, keys));
    std::mt19937 random(1);
    const auto prompt = random_ids(random, 21), next = random_ids(random, 1);
    std::vector<std::unique_ptr<Forward>> forwards;
    for (const KvOptions& kv : all)
        forwards.push_back(make_gpu_forward(device, model.config, weights, small_options(kv), tuning));
    for (size_t i = 0; i < all.size(); i++) { // after all were made
        const std::string types = describe(all[i]);
        CAPTURE(types);
        const auto on_cpu = make_cpu_forward(model.config, model.weights, small_options(all[i]));
        const double limit =
            all[i].k == KvType::f32 ? own_kernels(device).limit() : 0.05; // a code that falls on the other side of a threshold
        for (const auto& ids : {prompt, next}) CHECK(relative_error(forwards[i]->run(ids), on_cpu->run(ids)) <= limit);
    }
}

// The values' channels differ by a hundred times and more: without a multiplication on either side nothing is right.
TEST_CASE("values are scaled as on the CPU") {
    const SmallModel small;
    const test::TemporaryFile path;
    test::write_stressed_model(small.path.path(), path.path(), {.value_spread = 1});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, small.config);
    Device device;
    std::mt19937 random(2);
    const auto prompt = random_ids(random, 21), next = random_ids(random, 1);
    std::vector<KvOptions> all{{KvType::f32, KvType::tq4},
                               {KvType::f32, KvType::tq6, RotationKind::haar},
                               {KvType::f32, KvType::tq4t},
                               {KvType::tq6, KvType::q8_0}};
    all.push_back({KvType::f32, KvType::tq4});
    all.back().window = 5;
    for (const KvOptions& kv : all) {
        const std::string types = describe(kv);
        CAPTURE(types);
        const auto on_gpu = make_gpu_forward(device, small.config, weights, small_options(kv)),
                   on_cpu = make_cpu_forward(small.config, weights, small_options(kv));
        for (const auto& ids : {prompt, next}) CHECK(relative_error(on_gpu->run(ids), on_cpu->run(ids)) <= 0.05);
        CHECK(on_gpu->position() == 22);
    }
}

TEST_CASE("a conditioned cache is cut as any other") {
    const SmallModel model;
    Device device;
    check_cuts({conditioned(KvType::tq3, RotationKind::wht, random_calibration(model.config))},
               [&](const ForwardOptions& options) { return make_gpu_forward(device, model.config, model.weights, options); });
}
