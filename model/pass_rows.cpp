#include "model/pass_rows.h"
#include <algorithm>

namespace tq {

void PassRows::add(uint32_t slot, uint32_t position, std::span<const uint32_t> more, uint32_t window_begin, bool separate,
                   StateRange state) {
    const auto count_of = uint32_t(more.size()), first = count();
    ids.insert(ids.end(), more.begin(), more.end());
    for (uint32_t i = 0; i < count_of; i++)
        rows.push_back({.position = position + i,
                        .slot = slot,
                        .before = separate ? 0 : i,
                        .after = separate ? 0 : count_of - 1 - i,
                        .window_begin = window_begin,
                        .state = state});
    if (!separate) spans.push_back({first, first + count_of});
}

PassRows PassRows::part(uint32_t first, uint32_t count) const {
    PassRows out;
    const PassRow& row = rows[first];
    const bool continues = first > 0 && rows[first - 1].slot == row.slot;
    const uint32_t begin = continues ? std::min(row.state.end, row.position) : row.state.begin; // of the slot's states
    if (!spans.empty()) {
        out.add(row.slot, row.position, std::span(ids).subspan(first, count), row.window_begin, false, {begin, row.state.end});
        return out;
    }
    out.ids.assign(ids.begin() + first, ids.begin() + first + count);
    out.rows.assign(rows.begin() + first, rows.begin() + first + count);
    for (PassRow& r : out.rows)
        if (r.slot == row.slot) r.state.begin = begin;
    return out;
}

} // namespace tq
