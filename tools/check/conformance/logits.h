// Checks a model's logits, on any Forward, against those of plain loops: a benchmark requires this before it times anything.
#pragma once
#include "model/forward.h"
#include "model/weights/weights.h"
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tq::conformance {

// Bounds of an error. No correct device has shown more than `usual`: above it a warning is printed. Above `limit` the result is
// wrong.
struct Bounds {
    double usual = 0, limit = 0;
};

struct LogitsCheck {
    double error = 0;    // ||logits - reference|| / ||reference||, the worst run of a prompt
    Bounds bounds;       // of `error`
    uint32_t layers = 0; // layers of the model that were compared

    bool passed() const { return error <= bounds.limit; } // false if it is NaN
    bool usual() const { return error <= bounds.usual; }
};

// The allowed relative errors of logits, and of attention. fp16_products: products are of fp16 (Tuning::rounds_to_fp16()). With
// an f32 cache, where implementations differ only by the order of sums and the rounding of functions.
Bounds exact_bounds(bool fp16_products);
// With any other cache, where a value near a threshold may get the neighbouring code. noise: the error of the CPU path itself
// with perturbed weights.
Bounds cache_bounds(double noise, bool fp16_products);
// Whether every layer's types are f32.
bool is_exact(const KvOptions& kv);

// Returns the bounds of attention's output over vectors that the device stored itself.
Bounds attention_bounds(const KvOptions& kv);

// Returns the limit of the error between two tunings of one device, for workloads without a reference.
double error_limit(const KvOptions& kv, bool fp16_products);

// ||a - b|| / ||b||
double relative_error(std::span<const float> a, std::span<const float> b);

// Some consecutive layers of a model, and the head.
struct CutModel {
    Config config;
    Weights weights;
};
// Returns `count` layers, at least one and at most all: the first ones, or of a hybrid the first range in which layers of both
// kinds are, which has at least two.
CutModel cut_layers(const Config& config, const Weights& weights, uint32_t count);
// Returns as many layers as the reference computes in some seconds.
CutModel cut_model(const Config& config, const Weights& weights);
// Returns the number of a layer's weights, of all its experts.
double weight_count(const LayerWeights& layer);

// The logits [vocab_size] that a forward pass of the cut model must give after each run of each prompt. The prompts are short,
// run by the kernels of model/reference/kernels.h; with an exact cache some are also long enough for the kernels of whole
// blocks, run by the CPU path.
struct ExpectedLogits {
    std::vector<std::vector<float>> logits;
    Bounds bounds;
    bool exact = false;
};
constexpr uint32_t check_tokens = 98; // the context that the prompts need
// Nothing when `keep_going`, called now and then, returns false.
std::optional<ExpectedLogits> expect_logits(const CutModel& model, const KvOptions& kv, bool fp16_products,
                                            const std::function<bool()>& keep_going);

// `forward` is of the same cut model and cache with room for check_tokens. The error is that of the worst prompt with an exact
// cache, otherwise that of the best: a code changed by rounding is rare, but a wrong kernel affects every prompt.
LogitsCheck compare_logits(Forward& forward, const ExpectedLogits& expected, const CutModel& model);

} // namespace tq::conformance
