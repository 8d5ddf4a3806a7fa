// The division of spans among passes on the CPU.
#pragma once
#include "model/forward.h"

namespace tq::cpu {

// Those ids of a span that one pass runs.
struct Slice {
    size_t span;
    uint32_t first, count;
};

// The slices of one pass, whose rows are separate or in blocks (kernels.h).
struct PassSlices {
    bool separate = false;
    std::vector<Slice> slices; // in the order of spans; none when all ids have been run
};

// Returns the length of the longest slice whose rows are separate: up to one and a half passes of them take less time than a
// block, at 2000 positions, too, where blocks save attention.
constexpr uint32_t max_short_slice(uint32_t max_separate_rows) { return max_separate_rows + max_separate_rows / 2; }

// A span's logits must not depend on the other spans of a run, nor on how they are divided among passes. So a span is cut into
// slices of batch_size, the last two of which share what is left where the last would be short. Short spans, and the ends of
// others where batch_size is small, share passes of max_separate_rows separate rows, and may be cut anywhere. Longer ones share
// passes of batch_size rows, as blocks. When deterministic, all rows are separate.
class Schedule {
  public:
    // `spans` must outlive it.
    Schedule(std::span<const Span> spans, uint32_t batch_size, uint32_t max_separate_rows, bool deterministic);

    PassSlices next();

  private:
    uint32_t slice_of(size_t span) const;

    const std::span<const Span> spans_;
    const uint32_t max_separate_rows_, batch_size_;
    std::vector<uint32_t> done_; // ids of each span
};

} // namespace tq::cpu
