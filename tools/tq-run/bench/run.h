// Runs bench's tests on every model, device and cache.
#pragma once
#include "tools/tq-run/bench/result.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/engine/setup.h"

namespace tq::bench {

// Opens each model on each device and calls `run`, which returns whether everything could be measured; then `finish`, also on
// Ctrl-C and before an error is thrown. Returns the exit status.
int run_subjects(const Arguments& arguments, Console& console, const std::function<bool(Subject&)>& run,
                 const std::function<void()>& finish);

// Calls `run` with each cache; an error is said, and the rest is measured. Returns whether there was none. Throws LoadStopped.
bool run_caches(const Arguments& arguments, const Setup& setup, Console& console, const std::function<void(KvOptions)>& run);

// Calls `once` for each repetition of -r, after `say` with its number; it returns nothing after Ctrl-C, which ends all. The
// logits have been checked before.
template <class Once> auto repeat(const Arguments& arguments, const std::function<void(const std::string&)>& say, Once once) {
    std::vector<typename decltype(once())::value_type> samples;
    for (uint32_t i = 0; i < arguments.repetitions; i++) {
        say(fmt::format("{} of {}", i + 1, arguments.repetitions));
        const auto sample = once();
        if (!sample) break;
        samples.push_back(*sample);
    }
    return samples;
}

// The tests of -p, -n and -pg, or of -np. Returns the exit status.
int run_tests(const Arguments& arguments, Console& console);

} // namespace tq::bench
