// The timing of tests on a Forward that is ready to run.
#pragma once
#include "tools/tq-run/bench/result.h"

namespace tq::bench {

// The tokens that the forward's context must hold for these tests.
uint32_t context_for(std::span<const Test> tests);

// Called with the current activity: "tg128 @ d4096, 2 of 5".
using Report = std::function<void(const std::string&)>;

// Fills the cache to the test's depth, runs the test once, then `repetitions` times: returns the samples and their energy,
// without loading and building of pipelines. Fewer samples, or none, after Ctrl-C.
struct Timed {
    std::vector<uint64_t> ns;
    std::vector<Energy> energy;
};
Timed time_test(Forward& forward, uint32_t vocab_size, const Test& test, uint32_t repetitions, EnergyMeter& meter,
                const Report& report);

// The cost of each kernel in the test, or in its first few tokens; nothing where the device has no timestamps.
struct Profiled {
    std::vector<ProfileRow> kernels;
    uint32_t tokens;
};
Profiled profile_test(Device& device, Forward& forward, uint32_t vocab_size, const Test& test);

} // namespace tq::bench
