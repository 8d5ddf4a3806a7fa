#include "model/cpu/schedule.h"
#include <algorithm>

namespace tq::cpu {

Schedule::Schedule(std::span<const Span> spans, uint32_t batch_size, uint32_t max_separate_rows, bool deterministic)
    : spans_(spans), max_separate_rows_(max_separate_rows),
      batch_size_(deterministic ? std::min(batch_size, max_separate_rows) : batch_size), done_(spans.size()) {}

uint32_t Schedule::slice_of(size_t span) const {
    return BlockKernels{batch_size_, max_short_slice(max_separate_rows_) + 1}.slice(uint32_t(spans_[span].ids.size()) -
                                                                                    done_[span]);
}

PassSlices Schedule::next() {
    PassSlices pass;
    uint32_t room = 0;
    for (size_t i = 0; i < spans_.size(); i++) {
        uint32_t count = slice_of(i);
        if (count == 0) continue;
        const bool separate = count <= max_short_slice(max_separate_rows_);
        if (pass.slices.empty()) { // the first span with ids left decides what kind of pass it is
            pass.separate = separate;
            room = separate ? max_separate_rows_ : batch_size_;
        }
        if (separate != pass.separate) continue;
        if (separate) count = std::min(count, room);
        if (count == 0 || count > room) continue;
        pass.slices.push_back({i, done_[i], count});
        room -= count;
    }
    for (const Slice& slice : pass.slices) done_[slice.span] += slice.count;
    return pass;
}

} // namespace tq::cpu
