// A model's logits, on any Forward, against those of plain loops: what a benchmark asks for before it times anything.
#pragma once
#include "model/forward.h"
#include "model/weights.h"
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tq::conformance {

struct LogitsCheck {
    double error = 0, limit = 0; // ||logits - reference|| / ||reference||, the worst of a prompt; the most it may be
    uint32_t layers = 0;         // of the model, that were compared

    bool passed() const { return error <= limit; } // and not where it is NaN
};

// What tests allow: caches of fp32 differ by the order of sums. In others a value next to a threshold gets its neighbour's code.
// `halves`: products of fp16 (Tuning::rounds_to_halves()).
double error_limit(const KvOptions& kv, bool halves = false);

// ||a - b|| / ||b||
double relative_error(std::span<const float> a, std::span<const float> b);

// A model's first layers, as many as the reference computes in some seconds, and the head.
struct CutModel {
    Config config;
    Weights weights;
};
CutModel cut_model(const Config& config, const Weights& weights);

// Of a few prompts of check_tokens, the first tokens in one block and the last one by one: the logits [vocab_size] after each
// run, by the kernels of model/cpu/reference.h. Empty when `keep_going`, asked now and then, says no.
constexpr uint32_t check_tokens = 12;
std::vector<std::vector<float>> reference_logits(const CutModel& model, const KvOptions& kv,
                                                 const std::function<bool()>& keep_going);

// The same on `forward`, of the same cut model with room for check_tokens: the error of the first prompt that passes, or the
// least.
LogitsCheck compare_logits(Forward& forward, const std::vector<std::vector<float>>& reference, const CutModel& model,
                           bool halves = false);

} // namespace tq::conformance
