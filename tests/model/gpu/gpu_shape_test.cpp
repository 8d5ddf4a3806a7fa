// Shapes with random weights: Qwen3-0.6B's own, whose output head fits no 128 MiB binding, and small ones of every GQA ratio.
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "model/gpu/steps.h"
#include "model/gpu/tuning_fields.h"
#include "tests/support/device_kernels.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <cstring>

using namespace tq;

TEST_CASE("Qwen3-0.6B's shape runs on the device as on the CPU") {
    const Config config{151936, 1024, 3072, 28, 16, 8, 128, 40960, 1e6f, 1e-6f};
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 6, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, config);
    Device device;
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64, .batch_size = 8};
    const auto on_cpu = make_cpu_forward(config, weights, options),
               on_device = make_gpu_forward(device, config, weights, options);

    const std::vector<uint32_t> prompt{1, 70000, 151935, 65535, 65536, 5, 6, 7, 8, 9}; // two blocks, and rows of every slice
    CHECK(relative_error(on_device->run(prompt), on_cpu->run(prompt)) <= own_kernels(device).limit());
    for (const uint32_t id : {12u, 131071u}) {
        const std::vector<uint32_t> next{id};
        CHECK(relative_error(on_device->run(next), on_cpu->run(next)) <= own_kernels(device).limit());
    }
}

TEST_CASE("every GQA ratio of Qwen3, with tied and untied heads, runs on the device as on the CPU") {
    Device device;
    for (const uint32_t group : {1u, 2u, 4u, 5u, 8u})
        for (const bool tied : {true, false}) {
            CAPTURE(group);
            CAPTURE(tied);
            Config config = test::small_config();
            config.num_attention_heads = config.num_key_value_heads * group;
            const test::TemporaryFile path;
            test::write_random_model(path.path(), {config, GgmlType::Q8_0, tied, group, {}});
            const ModelFile file = read_gguf(path.path());
            const Weights weights = read_weights(file, config);
            CHECK(weights.tied == tied);
            const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 16};
            const auto on_cpu = make_cpu_forward(config, weights, options),
                       on_device = make_gpu_forward(device, config, weights, options);
            const std::vector<uint32_t> prompt{1, 2, 3, 4, 5}, next{6};
            CHECK(relative_error(on_device->run(prompt), on_cpu->run(prompt)) <= own_kernels(device).limit());
            CHECK(relative_error(on_device->run(next), on_cpu->run(next)) <= own_kernels(device).limit());
        }
}

namespace {

// The tensor with 100 as the scale of its last block: 2^10 times as much is no fp16 number. `bytes` holds its rows.
Tensor with_a_large_scale(Tensor tensor, std::vector<std::byte>& bytes) {
    bytes.assign(tensor.data.begin(), tensor.data.end());
    const BlockFormat& format = *block_format(tensor.type);
    constexpr uint16_t hundred = 0x5640;
    std::memcpy(&bytes[bytes.size() - format.bytes + size_t(format.scales.scale)], &hundred, 2);
    tensor.data = bytes;
    return tensor;
}

} // namespace

TEST_CASE("matrices with a scale that cannot be raised, alone and paired with another, run on the device as on the CPU") {
    Device device;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {test::small_config(), GgmlType::Q8_0, true, 5, {}});
    const ModelFile file = read_gguf(path.path());
    Weights weights = read_weights(file, test::small_config());
    std::vector<std::byte> up, down;
    weights.layers[0].ffn_up = with_a_large_scale(weights.layers[0].ffn_up, up);
    weights.layers[0].ffn_down = with_a_large_scale(weights.layers[0].ffn_down, down);
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 16};
    const auto on_cpu = make_cpu_forward(test::small_config(), weights, options),
               on_device = make_gpu_forward(device, test::small_config(), weights, options);
    const std::vector<uint32_t> prompt{1, 2, 3, 4, 5}, next{6};
    CHECK(relative_error(on_device->run(prompt), on_cpu->run(prompt)) <= own_kernels(device).limit());
    CHECK(relative_error(on_device->run(next), on_cpu->run(next)) <= own_kernels(device).limit());
}

TEST_CASE("stretched positions run on the device as on the CPU, and are others than plain ones") {
    Device device;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {test::small_config(), GgmlType::Q8_0, true, 4, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, test::small_config());
    std::vector<uint32_t> prompt(200);
    for (uint32_t i = 0; i < prompt.size(); i++) prompt[i] = i * 7 % 300;
    std::vector<std::vector<float>> seen;
    for (const RopeScalingType type : {RopeScalingType::none, RopeScalingType::linear, RopeScalingType::yarn}) {
        Config config = test::small_config();
        config.rope_scaling.original_context_length = 64;
        if (type != RopeScalingType::none) config = with_rope(config, {.type = type, .factor = 4});
        const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 256};
        const auto on_cpu = make_cpu_forward(config, weights, options);
        const auto expected = on_cpu->run(prompt);
        for (const DeviceKernels& kernels : kernels_to_check(device))
            CHECK(relative_error(kernels.make(device, config, weights, options)->run(prompt), expected) <= kernels.limit());
        for (const auto& other : seen) CHECK(relative_error(expected, other) > 1e-2);
        seen.emplace_back(expected.begin(), expected.end());
    }
}

namespace {

// The number of barriers in a recorded token of a model with that many layers.
uint32_t waits(Device& device, DeviceType type, uint32_t layers) {
    Capabilities like = device.capabilities();
    like.type = type;
    const gpu::Tuning tuning = gpu::choose_tuning(like);
    Config config = test::small_config();
    config.num_hidden_layers = layers;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 1, {}});
    const ModelFile file = read_gguf(path.path());
    ThreadPool pool;
    const gpu::DeviceWeights weights =
        gpu::upload_weights(device, pool, read_weights(file, config), tuning.weight_interleave, {});
    const ForwardOptions options{.kv = {KvType::tq4, KvType::tq4}, .context_size = 512, .batch_size = 16};
    const gpu::DeviceStorage cache(device, config, options.kv, options.pages());
    const gpu::Scratch scratch = make_scratch(device, gpu::ScratchBytes(config, tuning, options));
    const Buffer context = device.allocate("context", gpu::context_layout(config, options).bytes()),
                 ids = device.allocate("ids", 4 * options.batch_size);
    const auto head_norms = gpu::upload_head_norms(device, config, weights, {});
    const gpu::Network net(config, weights, head_norms, cache);
    const gpu::Activations x(config, scratch, ids, scratch.logits);
    const gpu::Step step{0, 1};
    const Tap off;
    gpu::Taps taps(device, off);
    Recorder recorder(device);
    gpu::ForwardPass pass{{recorder, tuning, context, 1, config.head_dim, step}, config, scratch, taps};
    gpu::layers(pass, net, x);
    pass.end_layers();
    gpu::head(pass, net, x);
    const uint32_t barriers = recorder.barriers();
    recorder.finish();
    return barriers;
}

} // namespace

TEST_CASE("in a layer a token waits seven times on a GPU, and nine times on a processor") {
    Device device;
    CHECK(waits(device, DeviceType::discrete, 3) - waits(device, DeviceType::discrete, 2) == 7);
    CHECK(waits(device, DeviceType::cpu, 3) - waits(device, DeviceType::cpu, 2) == 9);
}

namespace {

// Kernels of a GPU, and how far off they may be in which cache.
struct KernelChoice {
    std::string name;
    DeviceKernels kernels;
    KvType type;
    double limit;
};

// A code beyond a threshold costs some thousandths: a few are, if sums have another order, and more if a token's attention
// is of halves. Products of halves move so many that only a cache without codes tells them from wrong ones.
std::vector<KernelChoice> variants(const gpu::Tuning& own) {
    const auto with = [&](auto&& change) {
        gpu::Tuning tuning = without_halves(own);
        change(tuning);
        return DeviceKernels{tuning};
    };
    std::vector<KernelChoice> out{
        {"fp32", with([](gpu::Tuning&) {}), KvType::f32, exact_limit},
        {"fp32, compressed", with([](gpu::Tuning&) {}), KvType::tq4, 1e-2},
        {"a token's attention of halves", with([](gpu::Tuning& t) { t.decode_subgroups = 2; }), KvType::tq4, 2e-2},
        {"int8, vectors", with([](gpu::Tuning& t) { t.matvec_dot = 64; }), KvType::f32, 2 * exact_limit},
        {"int8", with([](gpu::Tuning& t) { t.matmul_dot = true; }), KvType::f32, 2 * exact_limit}};
    if (!own.matmul_coopmat) return out;
    out.push_back({"matrices", with([](gpu::Tuning& t) { t.matmul_coopmat = true; }), KvType::f32, halves_limit});
    if (own.attention_coopmat_rows != 0) out.push_back({"all matrices", DeviceKernels{own}, KvType::f16, halves_limit});
    return out;
}

} // namespace

TEST_CASE("with a GPU's kernels logits are the CPU's, whether tokens come alone, a few at a time, or many") {
    Device device;
    Capabilities like = device.capabilities();
    like.type = DeviceType::discrete;
    Config config = test::small_config();
    config.hidden_size = 256;
    config.intermediate_size = 512;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {config, GgmlType::Q4_K, true, 3, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, config);
    for (const auto& [name, kernels, type, limit] : variants(gpu::choose_tuning(like))) {
        CAPTURE(name);
        if (!refusal(like, kernels.tuning).empty()) continue;
        const ForwardOptions options{.kv = {type, type}, .context_size = 512, .batch_size = 128};
        const auto on_device = kernels.make(device, config, weights, options),
                   on_cpu = make_cpu_forward(config, weights, options);
        uint32_t id = 0;
        for (const uint32_t tokens : {1u, 3u, 1u, 8u, 70u, 2u, 128u, 5u, 1u}) {
            std::vector<uint32_t> ids(tokens);
            for (uint32_t& each : ids) each = id++ * 7 % 300;
            CAPTURE(tokens);
            CHECK(relative_error(on_device->run(ids), on_cpu->run(ids)) <= limit);
        }
    }
}

namespace {

// Compares run_all() with the result of run() after each single id.
void check_all_logits(Forward& forward, std::span<const uint32_t> ids, double limit) {
    std::vector<std::vector<float>> one_by_one;
    forward.truncate(0);
    for (const uint32_t id : ids) {
        const auto logits = forward.run({&id, 1});
        one_by_one.emplace_back(logits.begin(), logits.end());
    }
    forward.truncate(0);
    uint32_t next = 0;
    CHECK(forward.run_all(ids, [&](uint32_t i, std::span<const float> logits) {
        CHECK(i == next++);
        CHECK(relative_error(logits, one_by_one.at(i)) <= limit);
    }));
    CHECK(next == ids.size());
    CHECK(forward.position() == ids.size());
    const std::vector<uint32_t> last{ids.back()};
    forward.truncate(uint32_t(ids.size()) - 1); // the cache holds the same
    CHECK(relative_error(forward.run(last), one_by_one.back()) <= limit);
    forward.truncate(0);
    uint32_t seen = 0;
    CHECK_FALSE(forward.run_all(
        ids, [&](uint32_t, std::span<const float>) { seen++; }, [](uint32_t, uint32_t) { return false; }));
    CHECK(seen < ids.size());
}

} // namespace

TEST_CASE("the logits of all tokens of a prompt are those of one token after the other") {
    Device device;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {test::small_config(), GgmlType::Q8_0, false, 9, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, test::small_config());
    std::vector<uint32_t> ids(301); // many blocks, the last one partial
    for (uint32_t i = 0; i < ids.size(); i++) ids[i] = i * 11 % 300;
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 512, .batch_size = 48};
    check_all_logits(*make_cpu_forward(test::small_config(), weights, options), ids, 1e-5);
    for (const DeviceKernels& kernels : kernels_to_check(device)) {
        CAPTURE(kernels.name());
        check_all_logits(*kernels.make(device, test::small_config(), weights, options), ids, kernels.limit());
    }
}
