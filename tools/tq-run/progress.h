// A long transfer as a line that people watch: "loading NAME: 43 % of 604.1 MiB, 1.9 GB/s, 0:02 left".
#pragma once
#include "base/transfer_meter.h"
#include "tools/tq-run/console.h"

namespace tq {

class TransferStatus {
  public:
    explicit TransferStatus(Console& console) : console_(console) {}
    ~TransferStatus() { console_.clear_status(); }
    TransferStatus(const TransferStatus&) = delete;

    // Shows a new line at most ten times a second. `what`: "loading NAME", printable; the rest as TransferMeter.
    void update(std::string_view what, uint64_t done, uint64_t total, uint64_t moved);

  private:
    Console& console_;
    TransferMeter meter_;
    TransferMeter::Time shown_{};
};

} // namespace tq
