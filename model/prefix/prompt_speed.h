// How long this machine takes for a page of a prompt: what a page is worth.
#pragma once
#include "model/cache.h"
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace tq {

class PromptSpeed {
  public:
    // So many tokens of a prompt took so long. A few tell nothing.
    void note(uint64_t tokens, std::chrono::nanoseconds time) {
        constexpr uint64_t least_measured_tokens = 32;
        if (tokens < least_measured_tokens || time.count() <= 0) return;
        const double now = double(tokens) / double(time.count());
        tokens_per_ns_ = tokens_per_ns_ == 0 ? now : 0.75 * tokens_per_ns_ + 0.25 * now;
    }
    // Of a whole page; nothing where no prompt was run yet.
    std::optional<std::chrono::nanoseconds> page_time() const {
        if (tokens_per_ns_ == 0) return std::nullopt;
        return std::chrono::nanoseconds(int64_t(std::min(page_tokens / tokens_per_ns_, 1e12)));
    }

  private:
    double tokens_per_ns_ = 0; // 0: not known yet
};

} // namespace tq
