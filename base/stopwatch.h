// The time since an event.
#pragma once
#include <chrono>
#include <cstdint>

namespace tq {

// It starts when it is made.
class Stopwatch {
  public:
    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
    uint64_t nanoseconds() const { return uint64_t(std::chrono::nanoseconds(Clock::now() - start_).count()); }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

} // namespace tq
