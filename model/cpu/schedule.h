// The division of spans among passes on the CPU.
#pragma once
#include "model/forward.h"

namespace tq::cpu {

// Those ids of a span that one pass runs.
struct Slice {
    size_t span;
    uint32_t first, count;
};

// A span's logits must not depend on the other spans of a run, nor on how they are divided among passes. So:
// - A few ids (few_tokens of kernels.h) share passes of a few rows with those of other spans. They may be cut anywhere: each row
//   has the bits that it has alone.
// - Many ids (many_tokens) are cut into slices of batch_size, which share passes of batch_size rows: each row has the bits that
// it
//   has in any pass of many rows.
// - What is between runs in a pass of its own.
// When deterministic, all are a few ids.
class Schedule {
  public:
    // `spans` must outlive it.
    Schedule(std::span<const Span> spans, uint32_t batch_size, bool deterministic);

    // Returns the slices of the next pass, in the order of spans; none when all ids have been run.
    std::vector<Slice> next();

  private:
    enum class Kind { few, own, many };
    uint32_t slice_of(size_t span) const;
    static Kind kind_of(uint32_t count);

    const std::span<const Span> spans_;
    const uint32_t batch_size_;
    std::vector<uint32_t> done_; // ids of each span
};

} // namespace tq::cpu
