#include "model/host/run.h"
#include "base/ensure.h"
#include <algorithm>
#include <cmath>

namespace tq::host {

Run::Run(KvCache& cache, std::span<const Span> spans) : cache_(cache), spans_(spans) {
    ENSURE(!spans.empty(), "no spans");
    std::vector<Cache::Need> needs;
    std::vector<bool> occurs(cache.shape().slots);
    for (const Span& span : spans) {
        ENSURE(!span.ids.empty() && span.slot < occurs.size() && !occurs[span.slot], "{} ids for slot {}", span.ids.size(),
               span.slot);
        occurs[span.slot] = true;
        needs.push_back({span.slot, uint32_t(span.ids.size())});
        start_.push_back(cache.position(span.slot));
        total_ += needs.back().tokens;
    }
    cache.reserve(needs);
}

bool Run::progressed(uint32_t tokens, const Progress& progress) {
    done_ += tokens;
    return !progress || progress(done_, total_);
}

void Run::require_finite(std::span<const float> values) const {
    if (std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return;
    std::optional<std::string> where;
    for (const Span& span : spans_)
        if (!where) where = cache_.find_nonfinite(span.slot);
    for (size_t i = 0; i < spans_.size(); i++) cache_.truncate(spans_[i].slot, start_[i]);
    fail_nonfinite(where);
}

} // namespace tq::host
