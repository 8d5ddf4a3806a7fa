// The time that work still takes whose status line shows its steps; progress.h is for work of a number of equal units.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace tq {

class TimeLeft {
  public:
    // done: the part finished before this run, which does not indicate its speed.
    explicit TimeLeft(double done = 0) : found_done_(done) {}

    // ", about 2:10 left" once two seconds have shown the speed, or nothing. done, total: of the work, in any unit.
    std::string after(double done, double total) const;

  private:
    const double found_done_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "90 s", "5 min", "3 h", "12 days": for how long something was not used.
std::string duration_text(int64_t seconds);

} // namespace tq
