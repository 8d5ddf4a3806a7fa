#include "tools/tq-run/time_left.h"
#include "base/transfer_meter.h"
#include <fmt/format.h>

namespace tq {

constexpr double min_seconds = 2;

std::string TimeLeft::after(double done, double total) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double moved = done - found_done_;
    if (seconds < min_seconds || moved <= 0 || total <= done) return "";
    return fmt::format(", about {} left", clock_text(seconds * (total - done) / moved));
}

} // namespace tq
