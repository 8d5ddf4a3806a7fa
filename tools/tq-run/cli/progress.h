// Long work as a line that people watch, never wider than the terminal:
//     WorkStatus status(console, "tokens");
//     for (...) status.update("perplexity of report.txt", tokens_done, all_tokens);
// shows "perplexity of report.txt: 43 % of 8192 tokens, 210 tokens/s, 0:22 left", and nothing once it is gone.
#pragma once
#include "base/transfer_meter.h"
#include "model/progress.h"
#include "tools/tq-run/cli/console.h"

namespace tq {

class TransferStatus {
  public:
    explicit TransferStatus(Console& console) : TransferStatus(console, "") {}
    ~TransferStatus() { console_.clear_status(); }
    TransferStatus(const TransferStatus&) = delete;

    // Shows a new line at most ten times a second. `what`: "loading NAME", printable, shortened if there is no room for it;
    // the rest as TransferMeter.
    void update(std::string_view what, uint64_t done, uint64_t total, uint64_t moved);
    // Returns what shows the progress of a loading, and stops it on Ctrl-C (base/interrupt.h). This must outlive it.
    LoadProgress loading(std::string what);

  protected:
    TransferStatus(Console& console, std::string unit) : console_(console), meter_(std::move(unit)) {}
    TransferMeter& meter() { return meter_; }

  private:
    Console& console_;
    TransferMeter meter_;
    TransferMeter::Time shown_{};
};

// Progress of anything that can be counted; the work begins with the object.
class WorkStatus : private TransferStatus {
  public:
    WorkStatus(Console& console, std::string unit);
    void update(std::string_view what, uint64_t done, uint64_t total) { TransferStatus::update(what, done, total, done); }
};

} // namespace tq
