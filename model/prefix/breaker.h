// After a failure of a store it is left alone for a while: a second at first, twice as long after each failure that follows, a
// minute at most. Then a probe tells whether it may be used again.
#pragma once
#include <algorithm>
#include <chrono>
#include <optional>

namespace tq {

class Breaker {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds first_pause{1000}, max_pause{60000};

    bool is_open() const { return probe_at_.has_value(); }    // the store is not to be used
    Clock::time_point probe_at() const { return *probe_at_; } // only of an open one
    bool is_probe_due(Clock::time_point now) const { return is_open() && now >= *probe_at_; }

    void failed(Clock::time_point now) {
        probe_at_ = now + pause_;
        pause_ = std::min(2 * pause_, max_pause);
    }
    // It answers again; the next failure makes a longer pause all the same, unless something succeeds before.
    void probed() { probe_at_.reset(); }
    void succeeded() {
        if (!is_open()) pause_ = first_pause;
    }

  private:
    std::optional<Clock::time_point> probe_at_;
    std::chrono::milliseconds pause_ = first_pause;
};

} // namespace tq
