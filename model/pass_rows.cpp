#include "model/pass_rows.h"

namespace tq {

void PassRows::add(uint32_t slot, uint32_t position, std::span<const uint32_t> more, uint32_t window_begin, bool separate) {
    const auto count_of = uint32_t(more.size()), first = count();
    ids.insert(ids.end(), more.begin(), more.end());
    for (uint32_t i = 0; i < count_of; i++)
        rows.push_back({position + i, slot, separate ? 0 : i, separate ? 0 : count_of - 1 - i, window_begin});
    if (!separate) spans.push_back({first, first + count_of});
}

PassRows PassRows::part(uint32_t first, uint32_t count) const {
    PassRows out;
    if (!spans.empty()) {
        out.add(rows[first].slot, rows[first].position, std::span(ids).subspan(first, count), rows[first].window_begin, false);
        return out;
    }
    out.ids.assign(ids.begin() + first, ids.begin() + first + count);
    out.rows.assign(rows.begin() + first, rows.begin() + first + count);
    return out;
}

} // namespace tq
