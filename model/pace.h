// The number of tokens that a device samples before the host reads them.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tq {

class Pace {
  public:
    // Returns about as many as take 50 ms, so that an answer still streams smoothly; one before the first measurement; at most
    // `max`.
    uint32_t next(uint32_t max) const { return uint32_t(std::clamp<uint64_t>(ns_ == 0 ? 1 : 50'000'000 / ns_, 1, max)); }
    void took(uint32_t tokens, uint64_t ns) { ns_ = std::max<uint64_t>(ns / tokens, 1); }

  private:
    uint64_t ns_ = 0; // per token, in the last batch
};

} // namespace tq
