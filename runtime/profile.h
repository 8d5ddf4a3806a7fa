// What each kernel cost.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tq {

struct ProfileRow {
    std::string kernel;
    uint64_t calls = 0;
    double ns = 0;                 // sum over all calls, by the device's clock
    uint64_t bytes = 0, flops = 0; // what the calls had to move and do, as their Work said
};

// The pipelines that were built for kernels.
struct BuildCount {
    uint32_t built = 0;
    std::optional<uint32_t> from_cache; // of those, where the driver tells
    double seconds = 0;

    // "31 kernels built in 0.12 s, 30 of them found in the cache"
    std::string text() const;
};

// Kernel, calls, us per call, GB/s, GFLOP/s and share of the time, most expensive first; a sentence where nothing was timed.
std::string profile_table(const std::vector<ProfileRow>& rows);

} // namespace tq
