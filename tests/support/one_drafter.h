// A drafter of tests, which looks at one sequence at a time; and a draft for one.
#pragma once
#include "model/engine/speculation/drafter.h"

namespace tq {

class OneDrafter : public Drafter {
  public:
    std::vector<double> priors() const override { return {0.5}; }
    bool is_free() const override { return true; }
    bool read(uint32_t, std::span<const uint32_t>, const Progress&) override { return true; }
    std::vector<Draft> draft(Forward&, std::span<const DraftRequest> requests) final {
        std::vector<Draft> out;
        for (const auto& [slot, ids, max] : requests) out.push_back({propose(ids, max)});
        return out;
    }
    virtual std::vector<uint32_t> propose(std::span<const uint32_t> ids, uint32_t max) = 0;
};

inline std::vector<uint32_t> draft_one(Drafter& drafter, Forward& model, std::span<const uint32_t> ids, uint32_t max,
                                       uint32_t slot = 0) {
    const DraftRequest request{slot, ids, max};
    return drafter.draft(model, std::span(&request, 1))[0].ids;
}

} // namespace tq
