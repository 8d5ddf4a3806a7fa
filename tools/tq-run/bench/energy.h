// Measures energy if Linux reports it: RAPL's counters of processor packages, and the hwmon sensor of the measured GPU.
// Elsewhere, and if the files may not be read, there are no values.
#pragma once
#include "base/stopwatch.h"
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tq::bench {

struct Energy {
    double joules;
    std::string source; // "package-0", "amdgpu"
};

struct PciId {
    uint32_t vendor, device;
};

class EnergyMeter {
  public:
    // `gpu`: the measured one; if two are of the same kind neither is, because they cannot be told apart. The environment
    // variable TQ_SYSFS names another directory than /sys, for tests.
    explicit EnergyMeter(std::optional<PciId> gpu);

    bool available() const { return !counters_.empty() || !power_.empty(); }
    void start();
    std::vector<Energy> stop(); // the energy used since start()

  private:
    struct Counter { // of microjoules
        std::filesystem::path file;
        std::string source;
        uint64_t range; // the value at which it wraps around; 0: never
        uint64_t first = 0;
    };
    void find_packages(const std::filesystem::path& sysfs);
    void find_gpu(const std::filesystem::path& sysfs, PciId gpu);
    void watch_power(const std::stop_token& stop);

    std::vector<Counter> counters_;
    std::filesystem::path power_; // a sensor of microwatts; empty if the GPU has a counter, or none
    std::string power_source_;
    double watts_sum_ = 0;
    uint64_t watts_count_ = 0;
    Stopwatch stopwatch_;  // since start()
    std::jthread watcher_; // the last member: joined before the members that it uses are destroyed
};

} // namespace tq::bench
