// Energy from what Linux shows in sysfs; other systems have none here. Counters (RAPL of processor packages, some GPUs) are read
// before and after; one that has wrapped around is corrected by its range. A GPU that only shows power is read every 20 ms by a
// thread, and the mean is multiplied by the time. A GPU is found by vendor and device, and only if there is exactly one such
// card, since Vulkan does not say which card it is. TQ_SYSFS names another directory, for tests.
#include "tools/tq-run/bench/energy.h"
#include "base/environment.h"
#include "base/path_text.h"
#include "base/printable.h"
#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tq::bench {
namespace {

namespace fs = std::filesystem;

constexpr auto power_interval = std::chrono::milliseconds(20);

std::optional<std::string> first_line(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    return std::getline(in, line) ? std::optional(printable(line, 40)) : std::nullopt;
}

// Reads a number, hexadecimal if it begins with 0x.
// Sysfs writes PCI ids in hexadecimal, and counters in decimal.
std::optional<uint64_t> number_in(const fs::path& file) {
    const auto line = first_line(file);
    if (!line || line->empty()) return std::nullopt;
    char* end = nullptr;
    const uint64_t value = std::strtoull(line->c_str(), &end, 0);
    return *end == '\0' ? std::optional(value) : std::nullopt;
}

std::vector<fs::path> entries(const fs::path& directory, std::string_view begins) {
    std::vector<fs::path> out;
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        if (utf8_text(at->path().filename()).starts_with(begins)) out.push_back(at->path());
    std::ranges::sort(out);
    return out;
}

} // namespace

EnergyMeter::EnergyMeter(std::optional<PciId> gpu) {
    const fs::path sysfs = utf8_path(environment_variable("TQ_SYSFS").value_or("/sys"));
    find_packages(sysfs);
    if (gpu) find_gpu(sysfs, *gpu);
}

// Reads zones of the first level only ("intel-rapl:0"): deeper zones are parts of these.
void EnergyMeter::find_packages(const fs::path& sysfs) {
    for (const fs::path& zone : entries(sysfs / "class/powercap", "intel-rapl:")) {
        const std::string file = utf8_text(zone.filename());
        if (std::ranges::count(file, ':') != 1 || !number_in(zone / "energy_uj")) continue;
        counters_.push_back(
            {zone / "energy_uj", first_line(zone / "name").value_or(file), number_in(zone / "max_energy_range_uj").value_or(0)});
    }
}

// Takes the first sensor of the card that counts energy or shows power; a counter is preferred. Two cards of the same vendor and
// device cannot be told apart, so none is taken.
void EnergyMeter::find_gpu(const fs::path& sysfs, PciId gpu) {
    std::vector<fs::path> found;
    for (const fs::path& card : entries(sysfs / "class/drm", "card")) {
        if (utf8_text(card.filename()).find('-') != std::string::npos) continue; // card0-HDMI-A-1: a connector
        if (number_in(card / "device/vendor") == gpu.vendor && number_in(card / "device/device") == gpu.device)
            found.push_back(card / "device/hwmon");
    }
    if (found.size() != 1) return;
    for (const fs::path& sensor : entries(found[0], "hwmon")) {
        const std::string source = first_line(sensor / "name").value_or("gpu");
        if (number_in(sensor / "energy1_input")) {
            counters_.push_back({sensor / "energy1_input", source, 0});
            return;
        }
        for (const char* file : {"power1_average", "power1_input"})
            if (number_in(sensor / file)) {
                power_ = sensor / file;
                power_source_ = source;
                return;
            }
    }
}

// The sums need no lock: start() clears them before the thread exists, and stop() reads them when it has ended.
void EnergyMeter::watch_power(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        if (const auto microwatts = number_in(power_)) {
            watts_sum_ += double(*microwatts) * 1e-6;
            watts_count_++;
        }
        std::this_thread::sleep_for(power_interval);
    }
}

void EnergyMeter::start() {
    for (Counter& counter : counters_) counter.first = number_in(counter.file).value_or(0);
    stopwatch_ = {};
    watts_sum_ = 0;
    watts_count_ = 0;
    if (!power_.empty()) watcher_ = std::jthread([this](const std::stop_token& stop) { watch_power(stop); });
}

// A counter that is smaller than before has wrapped around, once at most in a test of some seconds; without a known range it is
// left out rather than guessed.
std::vector<Energy> EnergyMeter::stop() {
    const double seconds = stopwatch_.seconds();
    std::vector<Energy> out;
    for (const Counter& counter : counters_) {
        const auto now = number_in(counter.file);
        if (!now || (*now < counter.first && counter.range == 0)) continue;
        const uint64_t used = *now >= counter.first ? *now - counter.first : *now + counter.range - counter.first;
        out.push_back({double(used) * 1e-6, counter.source});
    }
    if (power_.empty()) return out;
    watcher_.request_stop();
    watcher_.join();
    if (watts_count_ > 0) out.push_back({watts_sum_ / double(watts_count_) * seconds, power_source_});
    return out;
}

} // namespace tq::bench
