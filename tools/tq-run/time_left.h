// How long work still takes whose status line tells its steps; progress.h is for work that is a number of equal units.
#pragma once
#include <chrono>
#include <string>

namespace tq {

class TimeLeft {
  public:
    // What is done already, before this run, says nothing of its speed.
    explicit TimeLeft(double done = 0) : found_done_(done) {}

    // ", about 2:10 left" once two seconds have shown the speed, or nothing. done, total: of work, in any unit.
    std::string after(double done, double total) const;

  private:
    const double found_done_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace tq
