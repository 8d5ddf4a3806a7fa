// Cuts spans into passes of a stage that holds a whole model, and runs them. span_run.cpp says how.
#pragma once
#include "model/stages/stage.h"

namespace tq {

// Does what Forward::run() promises, by passes of a stage with these limits. halves: all of the model's layers.
bool run_spans(Stage& stage, const PassLimits& limits, HalfRange halves, Cache& cache, std::span<const Span> spans,
               const SpanLogits& each, const Progress& progress);

// Returns the tokens of a slot that its states are after when a span has been run from position `start` on: UINT32_MAX if all
// are.
uint32_t settled_after(const Span& span, uint32_t start);

// Checks the spans of a run and reserves room for them. Returns each slot's position before. Throws OutOfMemory; nothing is
// changed then.
std::vector<Cache::Need> begin_run(Cache& cache, std::span<const Span> spans);
// Takes slots back to positions `starts` (Need::tokens), where the run began, and throws NonFinite.
[[noreturn]] void report_nonfinite(Cache& cache, std::span<const Cache::Need> starts);
// Throws NonFinite if one of these logits or states is not finite.
void require_finite(std::span<const float> values);

} // namespace tq
