#include "base/transfer_meter.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

using namespace std::chrono;

constexpr milliseconds rate_window = 5s, shortest_rate = 500ms, between_samples = 100ms;
constexpr double longest_time = 359'999; // seconds: 99:59:59

std::string describe_time(double seconds) {
    const auto whole = uint64_t(std::min(seconds, longest_time) + 0.5);
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

} // namespace

double TransferMeter::bytes_per_second(Time now, uint64_t moved) {
    if (samples_.empty() || now - samples_.back().time >= between_samples) samples_.push_back({now, moved});
    while (samples_.size() > 2 && now - samples_[1].time >= rate_window) samples_.pop_front();
    const auto elapsed = now - samples_.front().time;
    return elapsed < shortest_rate ? 0 : double(moved - samples_.front().moved) / std::chrono::duration<double>(elapsed).count();
}

std::string TransferMeter::update(Time now, uint64_t done, uint64_t total, uint64_t moved) {
    const double rate = bytes_per_second(now, moved);
    std::string text = fmt::format("{} % of {:.1f} MiB", done * 100 / std::max<uint64_t>(total, 1), double(total) / (1 << 20));
    if (rate < 1) return text;
    text += rate >= 1e9 ? fmt::format(", {:.1f} GB/s", rate / 1e9) : fmt::format(", {:.1f} MB/s", rate / 1e6);
    return text + fmt::format(", {} left", describe_time(double(total - std::min(done, total)) / rate));
}

} // namespace tq
