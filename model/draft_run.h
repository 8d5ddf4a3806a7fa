// Drafts by a model's own head for multi-token prediction (Forward::draft()), step by step.
#pragma once
#include "model/forward.h"
#include "model/pass_rows.h"

namespace tq {

// Runs the head on separate rows, each a token that follows those of its slot or drafts after them. Returns the logits
// [rows][...], valid until the next run, of each row at least those of the ids that are wanted.
using RunDraft = std::function<std::span<const float>(const PassRows& rows, DraftIds ids)>;

// Runs the head on one such row, then on the most probable id after it, and so on, n times in all, without the host (Stage).
using RunDraftsAhead = std::function<std::vector<uint32_t>(const PassRows& row, uint32_t n, DraftIds ids)>;

// Does what Forward::draft() promises, in passes of at most max_rows rows. If there is an `ahead`, it drafts for a single slot
// whose logits nobody wants.
std::vector<std::vector<uint32_t>> run_drafts(Cache& cache, std::span<const DraftStart> starts, uint32_t n, DraftIds ids,
                                              uint32_t max_rows, const RunDraft& run, const DraftLogits& each,
                                              const RunDraftsAhead& ahead = {});

} // namespace tq
