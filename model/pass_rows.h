// The rows of a pass: tokens of spans, which one pass runs together.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

// Maximum of tokens that may be pending. A full-precision window survives losing this many (model/kv/window.h).
inline constexpr uint32_t max_pending = 15;
// Length of a slot's ring of pending tokens, for up to `pending` of them: those pending before a pass, one certain token, and
// those pending after it. A token is at its position modulo this.
constexpr uint32_t pending_ring(uint32_t pending) { return pending == 0 ? 0 : 2 * pending + 1; }
// Length of the ring of hidden states from which the head for multi-token prediction continues: its own while it drafts, and the
// last ones before.
constexpr uint32_t hidden_ring(uint32_t pending) { return 2 * pending + 2; }

// States of recurrent layers around a pass: it starts from the states after `begin` tokens of the slot, and leaves those after
// `end`. Tokens from `begin` to the pass's first row are pending, and applied first. Tokens from `end` on stay pending. By
// default nothing is pending.
struct StateRange {
    uint32_t begin = UINT32_MAX, end = UINT32_MAX; // at most the position of the first row, and the one after the last
};

// A token of a slot. before, after: how many rows of its span, before and after it in this pass, share the division of keys into
// parts with it; 0 if rows are separate. Kernels of devices read this struct: shaders/context_words.h.
struct PassRow {
    uint32_t position, slot, before = 0, after = 0, window_begin = 0;
    StateRange state = {}; // the same in all rows of a slot
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
    void add(uint32_t slot, uint32_t position, std::span<const uint32_t> ids, uint32_t window_begin, bool separate,
             StateRange state = {});
    uint32_t count() const { return uint32_t(rows.size()); }
    // Returns `count` rows from row `first` on as a pass of their own, after that of the rows before. They are of one span, or
    // separate.
    PassRows part(uint32_t first, uint32_t count) const;
};

} // namespace tq
