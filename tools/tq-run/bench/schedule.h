// The number of the test that is run, of how many, and the time that the rest may take.
#pragma once
#include "tools/tq-run/cli/time_left.h"
#include <string>
#include <vector>

namespace tq::bench {

struct Arguments;

class Schedule {
  public:
    // work: of each test, in any unit; all of them are run with every model, device, cache, batch size and number of threads.
    Schedule(const Arguments& arguments, const std::vector<double>& work);

    void begin() { number_++; }
    void end(double work) { done_ += work; }
    std::string text() const; // "test 3 of 12, about 2:10 left"

  private:
    size_t number_ = 0, count_ = 0;
    double done_ = 0, work_ = 0;
    TimeLeft left_;
};

} // namespace tq::bench
