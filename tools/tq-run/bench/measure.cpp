#include "tools/tq-run/bench/measure.h"
#include "base/interrupt.h"
#include "base/stopwatch.h"
#include "model/pace.h"
#include "model/sampling/sampler.h"
#include "tools/tq-run/bench/random_ids.h"
#include <algorithm>
#include <random>

namespace tq::bench {
namespace {

constexpr uint32_t first_block = 256;   // tokens that are actually run to fill the cache; even, as repeat_to requires
constexpr uint32_t profiled_tokens = 8; // of those generated: the kernels of all are the same

// False after Ctrl-C.
bool fill(Forward& forward, uint32_t vocab_size, uint32_t depth) {
    forward.truncate(0);
    if (depth == 0) return !interrupted();
    if (forward.run(random_ids(std::min(depth, first_block), vocab_size), keep_going).empty()) return false;
    if (depth > first_block) forward.repeat_to(depth);
    return !interrupted();
}

// Runs ids.size() tokens one by one: these ids, or where the device samples by itself the first id and the tokens it finds most
// likely from there, in the batches of a conversation. False after Ctrl-C.
bool generate(Forward& forward, std::span<const uint32_t> ids) {
    const uint32_t most = forward.max_sampled();
    if (most == 0) {
        for (size_t i = 0; i < ids.size() && !interrupted(); i++) forward.run(ids.subspan(i, 1));
        return !interrupted();
    }
    SamplerOptions greedy;
    greedy.temperature = 0;
    const Sampler sampler(greedy);
    Pace pace;
    uint32_t id = ids[0];
    for (size_t done = 0; done < ids.size() && !interrupted();) {
        const uint32_t n = pace.next(std::min(most, uint32_t(ids.size() - done)));
        const Stopwatch stopwatch;
        const std::vector<uint32_t> sampled = forward.run_sampled(id, n, sampler.device_sampling(n));
        pace.took(n, stopwatch.nanoseconds());
        done += sampled.size();
        id = sampled.back();
    }
    return !interrupted();
}

// One repetition, from `depth` on; nothing after Ctrl-C.
std::optional<uint64_t> run_once(Forward& forward, const Test& test, std::span<const uint32_t> ids) {
    forward.truncate(test.depth);
    const Stopwatch stopwatch;
    if (test.prompt > 0 && forward.run(ids.first(test.prompt), keep_going).empty()) return std::nullopt;
    if (ids.size() > test.prompt && !generate(forward, ids.subspan(test.prompt))) return std::nullopt;
    const uint64_t ns = stopwatch.nanoseconds();
    return interrupted() ? std::nullopt : std::optional(ns);
}

} // namespace

uint32_t context_for(std::span<const Test> tests) {
    uint64_t most = conformance::check_tokens;
    for (const Test& test : tests) most = std::max(most, uint64_t(test.depth) + test.tokens());
    return uint32_t(most); // each part is below 2^24
}

Timed time_test(Forward& forward, uint32_t vocab_size, const Test& test, uint32_t repetitions, EnergyMeter& meter,
                const Report& report) {
    const std::vector<uint32_t> ids = random_ids(test.tokens(), vocab_size);
    Timed timed;
    report(fmt::format("{}: warming up", test.name()));
    if (!fill(forward, vocab_size, test.depth) || !run_once(forward, test, ids)) return timed; // the cache has grown by now
    meter.start();
    for (uint32_t i = 0; i < repetitions; i++) {
        report(fmt::format("{}: {} of {}", test.name(), i + 1, repetitions));
        const auto ns = run_once(forward, test, ids);
        if (!ns) break;
        timed.ns.push_back(*ns);
    }
    timed.energy = meter.stop();
    if (timed.ns.size() < repetitions) timed.energy.clear(); // the stopped run used part of it
    return timed;
}

Profiled profile_test(Device& device, Forward& forward, uint32_t vocab_size, const Test& test) {
    std::vector<uint32_t> ids = random_ids(test.tokens(), vocab_size);
    ids.resize(test.prompt + std::min(test.generated, profiled_tokens));
    Profiled out{{}, uint32_t(ids.size())};
    device.profile = true;
    forward.record_again();
    device.take_profile();
    if (run_once(forward, test, ids)) out.kernels = device.take_profile();
    device.profile = false;
    forward.record_again();
    return out;
}

} // namespace tq::bench
