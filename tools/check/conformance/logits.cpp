// Checks the logits of a device on a few layers of the user's own model, within seconds, before anything is timed. The reference
// is the plain forward pass (the CPU path for the long prompt, which has been compared with it). The model is cut to as many
// layers as the reference computes in reasonable time, at least two, and so that a hybrid has both kinds.
// With an f32 cache one long and one short prompt must agree closely. With codes a single flipped code moves logits by
// hundredths, as much as a real fault; so three prompts are run and the best one counts, as flips are rare and faults are in all.
// The limit is again measured with noise in the weights (noise_of), a tenth of validate's, since it must show in the best of
// three.
#include "tools/check/conformance/logits.h"
#include "model/cpu/forward.h"
#include "model/reference/forward.h"
#include "tools/check/conformance/agreement.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tq::conformance {
namespace {

constexpr uint32_t short_block = 10, long_block = 96; // a prompt's first run; long: more than any tile of a matrix kernel
constexpr uint32_t single_tokens = 2;                 // after it
constexpr uint32_t coded_prompts = 3;
constexpr double max_products = 6e8; // maximum, approximate, of the reference's products in the layers for check_tokens
constexpr uint32_t min_layers = 2;
static_assert(long_block + single_tokens == check_tokens);

// The ids of prompt `number`, grouped by the runs in which they are given.
struct Prompt {
    std::vector<uint32_t> ids;
    std::vector<std::span<const uint32_t>> runs;

    Prompt(uint32_t number, uint32_t block, uint32_t vocab_size) {
        const uint32_t count = block + single_tokens;
        for (uint32_t i = 1; i <= count; i++) ids.push_back(uint32_t((number * 12 + i) * 2654435761ull % vocab_size));
        runs.push_back(std::span(ids).first(block));
        for (uint32_t i = block; i < count; i++) runs.push_back(std::span(ids).subspan(i, 1));
    }
};

std::vector<Prompt> make_prompts(bool exact, uint32_t vocab_size) {
    std::vector<Prompt> out;
    for (uint32_t number = 0; number < (exact ? 1 : coded_prompts); number++) out.emplace_back(number, short_block, vocab_size);
    if (exact) out.emplace_back(coded_prompts, long_block, vocab_size);
    return out;
}

} // namespace

// llvmpipe with subgroups of 4, 8 and 16, SwiftShader and the CPU path on the demo model: at most 2.1e-6 in fp32. With products
// of fp16 (cooperative matrices) the worst tap of the demo model was 6.7e-4 off on a driver that rounds to nearest; one that
// truncates is off by twice as much.
Bounds exact_bounds(bool fp16_products) { return fp16_products ? Bounds{2e-3, 1e-2} : Bounds{1e-5, 1e-4}; }

// The same, over all 34 types: the best of three prompts was at most 5.6e-5 off in fp32 (f16, on the CPU path), and 1.8e-6 in
// the TurboQuant types; single prompts up to 5.4e-2, if one code is its neighbour. Above 0.25 no error can be told from
// noise.
Bounds cache_bounds(double noise, bool fp16_products) {
    const Bounds min = fp16_products ? Bounds{1e-2, 4e-2} : Bounds{1e-4, 1e-3};
    return {std::clamp(noise, min.usual, 0.1), std::clamp(4 * noise, min.limit, 0.25)};
}

bool is_exact(const KvOptions& kv) {
    const auto exact = [](KvTypes types) { return types.k == KvType::f32 && types.v == KvType::f32; };
    return exact({kv.k, kv.v}) && std::ranges::all_of(kv.layers, [&](const auto& some) { return exact(some.types); });
}

// llvmpipe: at most 5.0e-6 (f16), 4.4e-7 in types with codes; cooperative matrices 2.5e-4.
Bounds attention_bounds(const KvOptions& kv) { return is_exact(kv) ? exact_bounds(false) : Bounds{1e-3, 1e-2}; }

// A single code that falls on the other side of a threshold moves the logits by some hundredths.
double error_limit(const KvOptions& kv, bool fp16_products) { return is_exact(kv) ? exact_bounds(fp16_products).limit : 0.05; }

double relative_error(std::span<const float> a, std::span<const float> b) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < b.size(); i++) {
        error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
        norm += double(b[i]) * b[i];
    }
    return a.size() == b.size() && norm > 0 ? std::sqrt(error / norm) : std::numeric_limits<double>::quiet_NaN();
}

double weight_count(const LayerWeights& layer) {
    double count = 0;
    const auto add = [&](const Tensor& t) { count += double(t.rows) * t.cols; };
    for_each_tensor_of_layer(layer, add);
    return count;
}

CutModel cut_layers(const Config& config, const Weights& weights, uint32_t count) {
    uint32_t other = 0; // the first layer of another kind than the first one; 0: there is none
    for (uint32_t layer = config.num_hidden_layers; layer-- > 1;)
        if (config.is_recurrent(layer) != config.is_recurrent(0)) other = layer;
    count = std::clamp(count, other == 0 ? 1u : 2u, config.num_hidden_layers);
    const uint32_t first = other < count ? 0 : other + 1 - count;
    CutModel cut{config, weights};
    cut.config.num_hidden_layers = count;
    cut.config.recurrent_layers.clear();
    for (uint32_t layer = first; config.recurrent && layer < first + count; layer++)
        cut.config.recurrent_layers.push_back(config.is_recurrent(layer));
    cut.weights.layers.assign(weights.layers.begin() + first, weights.layers.begin() + first + count);
    return cut;
}

CutModel cut_model(const Config& config, const Weights& weights) {
    double all = 0;
    for (const LayerWeights& layer : weights.layers) all += weight_count(layer);
    const double layer = all / double(weights.layers.size());
    const auto affordable = uint32_t(std::min(max_products / (layer * check_tokens), 1e6));
    return cut_layers(config, weights, std::max(affordable, min_layers));
}

namespace {

// The greatest error of the prompt's runs against the reference's logits `want`; NaN is kept.
double prompt_error(Forward& forward, const Prompt& prompt, std::span<const std::vector<float>> want) {
    double worst = 0;
    forward.truncate(0);
    for (size_t i = 0; i < prompt.runs.size(); i++) worst = worse(worst, relative_error(forward.run(prompt.runs[i]), want[i]));
    return worst;
}

// The perturbation of weights (with_noise()) that stands for a device's rounding, with fp32 or fp16 products: a tenth of what
// validate uses, because it must show up in the best of the prompts.
float check_noise(bool fp16_products) { return noise_like_rounding(fp16_products) / 10; }

// The error of the CPU path's best prompt with weights that are perturbed as much as rounding perturbs.
double noise_of(const CutModel& model, const KvOptions& kv, bool fp16_products, const ExpectedLogits& expected) {
    const NoisyWeights noisy = with_noise(model.weights, check_noise(fp16_products));
    const auto forward = make_cpu_forward(model.config, noisy.weights, {.kv = kv, .context_size = check_tokens});
    return compare_logits(*forward, expected, model).error;
}

} // namespace

std::optional<ExpectedLogits> expect_logits(const CutModel& model, const KvOptions& kv, bool fp16_products,
                                            const std::function<bool()>& keep_going) {
    ExpectedLogits out{{}, exact_bounds(fp16_products), is_exact(kv)};
    const ForwardOptions options{.kv = kv, .context_size = check_tokens};
    const auto reference = make_reference_forward(model.config, model.weights, options);
    const auto cpu = make_cpu_forward(model.config, model.weights, options);
    for (const Prompt& prompt : make_prompts(out.exact, model.config.vocab_size)) {
        Forward& forward = prompt.runs[0].size() == long_block ? *cpu : *reference;
        forward.truncate(0);
        for (const std::span<const uint32_t> ids : prompt.runs) {
            if (!keep_going()) return std::nullopt;
            const auto logits = forward.run(ids);
            out.logits.emplace_back(logits.begin(), logits.end());
        }
    }
    if (!out.exact) out.bounds = cache_bounds(noise_of(model, kv, fp16_products, out), fp16_products);
    return out;
}

LogitsCheck compare_logits(Forward& forward, const ExpectedLogits& expected, const CutModel& model) {
    LogitsCheck check{expected.exact ? 0 : std::numeric_limits<double>::infinity(), expected.bounds,
                      model.config.num_hidden_layers};
    std::span<const std::vector<float>> want = expected.logits;
    for (const Prompt& prompt : make_prompts(expected.exact, model.config.vocab_size)) {
        const double error = prompt_error(forward, prompt, want.first(prompt.runs.size()));
        want = want.subspan(prompt.runs.size());
        if (std::isnan(error)) check.error = error;
        if (std::isnan(check.error)) break;
        check.error = expected.exact ? std::max(check.error, error) : std::min(check.error, error);
    }
    return check;
}

} // namespace tq::conformance
