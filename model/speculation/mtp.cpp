#include "model/speculation/mtp.h"
#include <algorithm>

namespace tq {

std::vector<Draft> MtpDrafter::draft(Forward& model, std::span<const DraftRequest> requests) {
    std::vector<Draft> out(requests.size());
    std::vector<DraftStart> starts;
    std::vector<size_t> drafted;
    uint32_t steps = 0;
    for (size_t i = 0; i < requests.size(); i++) {
        const auto& [slot, ids, most] = requests[i];
        if (ids.size() < 2 || model.cache().position(slot) + 1 != ids.size()) continue;
        starts.push_back({slot, ids.back()});
        drafted.push_back(i);
        steps = std::max(steps, most);
    }
    if (starts.empty() || !model.drafts()) return out; // it may have been opened again over several devices
    std::vector<std::vector<uint32_t>> all = model.draft(starts, std::min(steps, model.cache().shape().pending + 1));
    for (size_t i = 0; i < all.size(); i++) {
        all[i].resize(std::min<size_t>(all[i].size(), requests[drafted[i]].most));
        out[drafted[i]].ids = std::move(all[i]);
    }
    return out;
}

} // namespace tq
