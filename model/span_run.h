// Runs spans as passes of a stage that holds a whole model: blocks of a prompt, or separate rows.
#pragma once
#include "model/stages/stage.h"

namespace tq {

// Forward::run() on passes of a stage with these limits; `halves` are all of the model's layers.
bool run_spans(Stage& stage, const PassLimits& limits, HalfRange halves, Cache& cache, std::span<const Span> spans,
               const SpanLogits& each, const Progress& progress);

// Checks the spans of a run and reserves room for them. Returns where each slot was. Throws OutOfMemory, before anything is
// changed.
std::vector<Cache::Need> begin_run(Cache& cache, std::span<const Span> spans);
// Takes slots back to positions `starts` (Need::tokens), where the run began, and throws NonFinite.
[[noreturn]] void report_nonfinite(Cache& cache, std::span<const Cache::Need> starts);
// Throws NonFinite where one of these logits or states is not finite.
void require_finite(std::span<const float> values);

} // namespace tq
