// Measures how long this machine takes to run a page of a prompt. Fetching a page may take as long.
#pragma once
#include "model/cache.h"
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace tq {

class PromptSpeed {
  public:
    // Notes the time that `tokens` tokens of a prompt took. Fewer than 32 are ignored.
    void note(uint64_t tokens, std::chrono::nanoseconds time) {
        constexpr uint64_t min_measured_tokens = 32;
        if (tokens < min_measured_tokens || time.count() <= 0) return;
        const double now = double(tokens) / double(time.count());
        tokens_per_ns_ = tokens_per_ns_ == 0 ? now : 0.75 * tokens_per_ns_ + 0.25 * now;
    }
    // Returns the time of a whole page; nullopt if no prompt was run yet.
    std::optional<std::chrono::nanoseconds> page_time() const {
        if (tokens_per_ns_ == 0) return std::nullopt;
        return std::chrono::nanoseconds(int64_t(std::min(page_tokens / tokens_per_ns_, 1e12)));
    }

  private:
    double tokens_per_ns_ = 0; // 0: not known yet
};

} // namespace tq
