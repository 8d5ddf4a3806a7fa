// What every Forward::run() on the host begins and ends with.
#pragma once
#include "model/forward.h"
#include "model/host/cache.h"

namespace tq::host {

class Run {
  public:
    // Reserves room for all spans. Throws OutOfMemory, before anything is changed. The arguments must outlive it.
    Run(KvCache& cache, std::span<const Span> spans);

    // Counts `tokens` more as run. Returns false where `progress` stops the run.
    bool progressed(uint32_t tokens, const Progress& progress);
    // Throws NonFinite, with all positions where the run began, where one of these logits or states is not finite.
    void require_finite(std::span<const float> values) const;

  private:
    KvCache& cache_;
    const std::span<const Span> spans_;
    std::vector<uint32_t> start_; // the position of each span's slot
    uint32_t done_ = 0, total_ = 0;
};

} // namespace tq::host
