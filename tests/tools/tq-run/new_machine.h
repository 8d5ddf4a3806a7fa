// Runs of tq-run generate on machines that have run nothing before: directories, each with a cache of its own.
#pragma once
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace tq::test {

using Flags = std::vector<std::string>;

// A prompt of some 20 tokens a sentence.
inline std::string story(int sentences) {
    std::string text;
    for (int i = 0; i < sentences; i++)
        text += "Once upon a time a small fox lived in a garden near the river. One day it rained. ";
    return text;
}

struct OnMachine {
    int sentences = 40;
    std::vector<std::string> environment{};
    const char* device = "cpu";
};

// Pages that do not come in time are computed here, as a message says. If this machine is that busy, others try again.
inline Finished generate(const Flags& more, const OnMachine& on = {}) {
    Finished finished;
    for (int i = 0; i < 5 && (i == 0 || contains(finished.error, "is slower than computing")); i++) {
        const TemporaryDirectory machine;
        Flags flags{TQ_RUN,     "generate", "-p",          story(on.sentences),     "-v",           "-n", "6", "--temp", "0",
                    "--device", on.device,  "--cache-dir", machine.path().string(), "--cache-disk", "100"};
        flags.insert(flags.end(), more.begin(), more.end());
        finished = run({flags, {}, on.environment});
    }
    return finished;
}

// The flags end the program with that status and reason, which shows no password.
inline void check_refused(const Flags& flags, const std::string& reason, int status = 2) {
    const Finished finished = generate(flags);
    CHECK_MESSAGE(finished.status == status, finished.error);
    CHECK_MESSAGE(contains(finished.error, reason), finished.error);
    CHECK_FALSE(contains(finished.error, "secret"));
}

} // namespace tq::test
