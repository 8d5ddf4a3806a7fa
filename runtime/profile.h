// The measured time of each kernel.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tq {

struct ProfileRow {
    std::string kernel; // and the matrix's size if it is a product: "matvec_q4_k 4096 x 1024"
    uint64_t calls = 0;
    double ns = 0;                 // sum over all calls, by the device's clock
    uint64_t bytes = 0, flops = 0; // the sums of the calls' Work
};

// The pipelines that were built for kernels.
struct BuildCount {
    uint32_t built = 0;
    std::optional<uint32_t> from_cache; // kernels found in the cache, if the driver reports it
    double seconds = 0;

    // Returns "31 kernels built in 0.12 s, 30 of them found in the cache".
    std::string text() const;
};

// Returns kernel, calls, us per call, GB/s, GFLOP/s and share of the time, most expensive first; a sentence if nothing was
// timed.
std::string profile_table(const std::vector<ProfileRow>& rows);

} // namespace tq
