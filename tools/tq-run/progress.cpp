#include "tools/tq-run/progress.h"
#include <cmath>
#include <fmt/format.h>

namespace tq {

std::string describe_transfer(uint64_t done_bytes, uint64_t total_bytes, double seconds) {
    const double share = total_bytes == 0 ? 1 : double(done_bytes) / double(total_bytes);
    std::string text = fmt::format("{:.0f} % of {:.1f} MiB", std::floor(share * 100), double(total_bytes) / (1 << 20));
    if (seconds < 0.1 || done_bytes == 0) return text; // too early to tell a rate
    const double rate = double(done_bytes) / seconds;
    text += rate >= 1e9 ? fmt::format(", {:.1f} GB/s", rate * 1e-9) : fmt::format(", {:.1f} MB/s", rate * 1e-6);
    const auto left = uint64_t(double(total_bytes - done_bytes) / rate + 0.5);
    return text + fmt::format(", {}:{:02} left", left / 60, left % 60);
}

void TransferStatus::update(uint64_t done_bytes, uint64_t total_bytes) {
    const auto now = Clock::now();
    if (now - shown_ < std::chrono::milliseconds(100) && done_bytes < total_bytes) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    console_.status(fmt::format("{}: {}", what_, describe_transfer(done_bytes, total_bytes, seconds)));
}

} // namespace tq
