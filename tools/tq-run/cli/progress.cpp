#include "tools/tq-run/cli/progress.h"
#include "base/interrupt.h"

namespace tq {

void TransferStatus::update(std::string_view what, uint64_t done, uint64_t total, uint64_t moved) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < std::chrono::milliseconds(100) && done < total) return;
    shown_ = now;
    console_.status(what, meter_.update(now, done, total, moved));
}

LoadProgress TransferStatus::loading(std::string what) {
    return [this, what = std::move(what)](uint64_t done, uint64_t total) {
        update(what, done, total, done);
        return !interrupted();
    };
}

WorkStatus::WorkStatus(Console& console, std::string unit) : TransferStatus(console, std::move(unit)) {
    meter().update(std::chrono::steady_clock::now(), 0, 1, 0);
}

} // namespace tq
