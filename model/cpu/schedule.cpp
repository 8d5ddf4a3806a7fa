#include "model/cpu/schedule.h"
#include "model/cpu/kernels.h"
#include <algorithm>

namespace tq::cpu {

Schedule::Schedule(std::span<const Span> spans, uint32_t batch_size, bool deterministic)
    : spans_(spans), batch_size_(deterministic ? std::min(batch_size, few_tokens) : batch_size), done_(spans.size()) {}

uint32_t Schedule::slice_of(size_t span) const {
    return uint32_t(std::min<size_t>(batch_size_, spans_[span].ids.size() - done_[span]));
}

Schedule::Kind Schedule::kind_of(uint32_t count) {
    return count <= few_tokens ? Kind::few : count < many_tokens ? Kind::own : Kind::many;
}

std::vector<Slice> Schedule::next() {
    std::vector<Slice> pass;
    Kind kind = Kind::few;
    uint32_t room = 0;
    for (size_t i = 0; i < spans_.size(); i++) {
        uint32_t count = slice_of(i);
        if (count == 0) continue;
        if (pass.empty()) { // the first span with ids left decides what kind of pass it is
            kind = kind_of(count);
            room = kind == Kind::few ? few_tokens : kind == Kind::own ? count : batch_size_;
        }
        if (kind_of(count) != kind) continue;
        if (kind == Kind::few) count = std::min(count, room);
        if (count == 0 || count > room) continue;
        pass.push_back({i, done_[i], count});
        room -= count;
    }
    for (const Slice& slice : pass) done_[slice.span] += slice.count;
    return pass;
}

} // namespace tq::cpu
