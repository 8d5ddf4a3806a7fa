// How a long transfer goes, in words.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

namespace tq {

class TransferMeter {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // "43 % of 373.1 MiB, 21.3 MB/s, 0:12 left": the rate of the last seconds, once there is one. `moved`: those of the bytes
    // done that were moved since the first call, not found done.
    std::string update(Time now, uint64_t done, uint64_t total, uint64_t moved);

  private:
    double bytes_per_second(Time now, uint64_t moved); // 0: unknown

    struct Sample {
        Time time;
        uint64_t moved;
    };
    std::deque<Sample> samples_;
};

} // namespace tq
