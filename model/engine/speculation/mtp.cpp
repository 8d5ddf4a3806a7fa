#include "model/engine/speculation/mtp.h"
#include <algorithm>

namespace tq {

// Returns whether hardly any of the last ids of a text are unlikely ones, as in languages whose tokens were merged late.
static bool are_likely(std::span<const uint32_t> ids) {
    constexpr size_t looked_at = 256, one_of = 32;
    const auto last = ids.last(std::min(ids.size(), looked_at));
    return size_t(std::ranges::count_if(last, [](uint32_t id) { return id >= likely_ids; })) * one_of <= last.size();
}

std::vector<Draft> MtpDrafter::draft(Forward& model, std::span<const DraftRequest> requests) {
    std::vector<Draft> out(requests.size());
    std::vector<DraftStart> starts;
    std::vector<size_t> drafted;
    uint32_t steps = 0;
    bool likely = true;
    for (size_t i = 0; i < requests.size(); i++) {
        const auto& [slot, ids, max] = requests[i];
        if (ids.size() < 2 || model.cache().position(slot) + 1 != ids.size()) continue;
        starts.push_back({slot, ids.back()});
        drafted.push_back(i);
        steps = std::max(steps, max);
        likely &= are_likely(ids);
    }
    if (starts.empty() || !model.drafts()) return out; // it may have been opened again over several devices
    std::vector<std::vector<uint32_t>> all =
        model.draft(starts, std::min(steps, model.cache().shape().pending + 1), likely ? DraftIds::likely : DraftIds::all);
    for (size_t i = 0; i < all.size(); i++) {
        all[i].resize(std::min<size_t>(all[i].size(), requests[drafted[i]].max_tokens));
        out[drafted[i]].ids = std::move(all[i]);
    }
    return out;
}

} // namespace tq
