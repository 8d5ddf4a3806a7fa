// A long transfer as a line that people watch: "loading NAME: 43 % of 604.1 MiB, 1.9 GB/s, 0:02 left".
#pragma once
#include "tools/tq-run/console.h"
#include <chrono>
#include <cstdint>
#include <string>

namespace tq {

class TransferStatus {
  public:
    // `what`: "loading NAME", printable.
    TransferStatus(Console& console, std::string what) : console_(console), what_(std::move(what)) {}
    ~TransferStatus() { console_.clear_status(); }
    TransferStatus(const TransferStatus&) = delete;

    // Shows a new line at most ten times a second. Rates are of what came since the first call.
    void update(uint64_t done_bytes, uint64_t total_bytes);

  private:
    using Clock = std::chrono::steady_clock;
    Console& console_;
    std::string what_;
    Clock::time_point started_ = Clock::now(), shown_{};
};

// The line itself.
std::string describe_transfer(uint64_t done_bytes, uint64_t total_bytes, double seconds);

} // namespace tq
