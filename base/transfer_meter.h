// The progress of a long transfer as text.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

namespace tq {

// Returns "0:05", "2:10", "1:02:10"; at most 99:59:59.
std::string clock_text(double seconds);

class TransferMeter {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // `unit`: the name of what is counted, such as "tokens"; empty: bytes.
    explicit TransferMeter(std::string unit = {}) : unit_(std::move(unit)) {}

    // Returns "43 % of 373.1 MiB, 21.3 MB/s, 0:12 left" or "43 % of 2339 tokens, 210 tokens/s, 0:06 left": the rate of the last
    // seconds, once it is known. `moved`: the part of `done` that was transferred since the first call, not found complete.
    std::string update(Time now, uint64_t done, uint64_t total, uint64_t moved);

  private:
    std::string amount(uint64_t total) const;
    std::string speed(double rate) const;
    double per_second(Time now, uint64_t moved); // 0: unknown

    struct Sample {
        Time time;
        uint64_t moved;
    };
    std::string unit_;
    std::deque<Sample> samples_;
};

} // namespace tq
