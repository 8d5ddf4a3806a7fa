// What each kernel cost.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tq {

struct ProfileRow {
    std::string kernel;
    uint64_t calls = 0;
    double ns = 0;                 // sum over all calls, by the device's clock
    uint64_t bytes = 0, flops = 0; // what the calls had to move and do, as their Work said
};

// Kernel, calls, us per call, GB/s, GFLOP/s and share of the time, most expensive first; a sentence where nothing was timed.
std::string profile_table(const std::vector<ProfileRow>& rows);

} // namespace tq
