// Architectures with biases and without norms of heads, on a device, as the reference computes them.
#include "base/error.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "model/reference/forward.h"
#include "tests/support/device_kernels.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <bit>

using namespace tq;

namespace {

const std::vector<uint32_t> prompt{5, 17, 300, 2, 99, 41, 41, 260, 7, 12, 13, 310, 8, 8, 64, 200, 31, 4, 77, 90};

std::vector<float> copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

// The keys of the first layer that has some as they are stored, in fp32.
std::vector<float> stored_keys(Forward& forward, const Config& config) {
    uint32_t layer = 0;
    while (config.is_recurrent(layer)) layer++;
    StoredSide keys = forward.stored(layer, KvSide::key);
    std::vector<float> out;
    for (uint32_t head = 0; head < keys.heads; head++)
        for (uint32_t t = 0; t < keys.tokens; t++)
            for (const uint32_t word : keys.codes_of(head, t)) out.push_back(std::bit_cast<float>(word));
    return out;
}

// The last logits of the prompt as a block, its stored keys, and the logits of its tokens one by one.
std::vector<std::vector<float>> results(Forward& forward, const Config& config) {
    std::vector<std::vector<float>> out{copy(forward.run(prompt)), stored_keys(forward, config)};
    forward.truncate(0);
    for (const uint32_t id : prompt) out.push_back(copy(forward.run({&id, 1})));
    return out;
}

} // namespace

TEST_CASE("the device agrees with the reference in every architecture, with norms folded into products and without") {
    Device device;
    std::vector<Config> configs;
    for (const Architecture& a : architectures) configs.push_back(test::small_config(a));
    configs.push_back(test::small_config(*find_model_type("qwen3_moe")));
    configs.back().norm_topk_prob = false;
    for (const Config& config : configs) {
        const std::string name(config.architecture->name);
        CAPTURE(name);
        CAPTURE(config.norm_topk_prob);
        const test::TemporaryFile path;
        test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 5, {}});
        const ModelFile file = read_gguf(path.path());
        const Weights weights = read_weights(file, config);
        ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64};
        options.kv.conditioning = parse_key_conditioning("norms"); // keys without the mean of their bias
        const auto want = results(*make_reference_forward(config, weights, options), config);
        for (DeviceKernels kernels : kernels_to_check(device))
            for (const bool folds : {false, true}) {
                CAPTURE(kernels.name());
                CAPTURE(folds);
                kernels.tuning.fold_norms = folds;
                const auto got = results(*kernels.make(device, config, weights, options), config);
                for (size_t i = 0; i < want.size(); i++) CHECK(relative_error(got[i], want[i]) <= kernels.limit());
            }
    }
}

TEST_CASE("a block that exceeds the device's limits is refused with what to do") {
    Device device;
    const Config config = test::small_config(*find_model_type("qwen3_moe"));
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 5, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, config);
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64, .batch_size = UINT32_MAX / 512};
    try {
        make_gpu_forward(device, config, weights, options);
        FAIL("it was accepted");
    } catch (const Error& e) {
        const std::string text = e.what();
        CAPTURE(text);
        CHECK(text.find("a block of 8388") != std::string::npos);
        CHECK(text.find("choose a smaller --batch-size") != std::string::npos);
    }
}
