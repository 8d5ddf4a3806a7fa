#include "tools/tq-run/cli/time_left.h"
#include "base/transfer_meter.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {

constexpr double min_seconds = 2;

std::string TimeLeft::after(double done, double total) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double moved = done - found_done_;
    if (seconds < min_seconds || moved <= 0 || total <= done) return "";
    return fmt::format(", about {} left", clock_text(seconds * (total - done) / moved));
}

std::string duration_text(int64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", std::max<int64_t>(seconds, 0));
    if (seconds < 7200) return fmt::format("{} min", seconds / 60);
    return seconds < 172800 ? fmt::format("{} h", seconds / 3600) : fmt::format("{} days", seconds / 86400);
}

} // namespace tq
