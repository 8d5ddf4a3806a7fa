// Progress as a line: share, rate and time left. The rate is that of the last 5 seconds, so that it follows a network that
// changes, and is not shown before half a second has passed. The rate counts bytes that moved; the share counts all bytes that
// are there, also those that were on the disk before.
#include "base/transfer_meter.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

using namespace std::chrono;

constexpr milliseconds rate_window = 5s, min_elapsed = 500ms, between_samples = 100ms;
constexpr double max_seconds = 359'999; // seconds: 99:59:59

} // namespace

std::string clock_text(double seconds) {
    const auto whole = uint64_t(std::clamp(seconds, 0.0, max_seconds) + 0.5);
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

double TransferMeter::per_second(Time now, uint64_t moved) {
    if (samples_.empty() || now - samples_.back().time >= between_samples) samples_.push_back({now, moved});
    while (samples_.size() > 2 && now - samples_[1].time >= rate_window) samples_.pop_front();
    const auto elapsed = now - samples_.front().time;
    return elapsed < min_elapsed ? 0 : double(moved - samples_.front().moved) / std::chrono::duration<double>(elapsed).count();
}

std::string TransferMeter::amount(uint64_t total) const {
    return unit_.empty() ? fmt::format("{:.1f} MiB", double(total) / (1 << 20)) : fmt::format("{} {}", total, unit_);
}

std::string TransferMeter::speed(double rate) const {
    if (unit_.empty()) return rate >= 1e9 ? fmt::format("{:.1f} GB/s", rate / 1e9) : fmt::format("{:.1f} MB/s", rate / 1e6);
    return fmt::format("{:.{}f} {}/s", rate, rate < 10 ? 1 : 0, unit_);
}

std::string TransferMeter::update(Time now, uint64_t done, uint64_t total, uint64_t moved) {
    const double rate = per_second(now, moved);
    const std::string text = fmt::format("{} % of {}", done * 100 / std::max<uint64_t>(total, 1), amount(total));
    if (rate < (unit_.empty() ? 1 : 0.05)) return text;
    return fmt::format("{}, {}, {} left", text, speed(rate), clock_text(double(total - std::min(done, total)) / rate));
}

} // namespace tq
