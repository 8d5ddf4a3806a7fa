// The rows of a pass: tokens of spans, which one pass runs together.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

// A token of a slot. before, after: how many rows of its span, before and after it in this pass, share the division of keys into
// parts with it; 0 if rows are separate. Kernels of devices read this struct: shaders/context_words.h.
struct PassRow {
    uint32_t position, slot, before = 0, after = 0, window_begin = 0;
};

// Rows [first, end) of a pass, of one slot and consecutive positions.
struct RowSpan {
    uint32_t first, end;
};

// The rows of a pass, span by span.
struct PassRows {
    std::vector<uint32_t> ids;
    std::vector<PassRow> rows;
    std::vector<RowSpan> spans; // empty if rows are separate

    // Adds ids of a slot from `position` on. separate: each row is computed as if it were alone.
    void add(uint32_t slot, uint32_t position, std::span<const uint32_t> ids, uint32_t window_begin, bool separate);
    uint32_t count() const { return uint32_t(rows.size()); }
    // Returns `count` rows from row `first` on as a pass of their own. They are of one span, or separate.
    PassRows part(uint32_t first, uint32_t count) const;
};

} // namespace tq
