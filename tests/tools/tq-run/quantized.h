// Shared by tests of tq-run quantize.
#pragma once
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

namespace tq::test {

// The output of a command that succeeds.
inline std::string output(const Finished& finished) {
    CAPTURE(finished.error);
    CHECK(finished.status == 0);
    return finished.output;
}

struct Place {
    TemporaryDirectory directory;

    std::string path(const char* name) const { return (directory.path() / name).string(); }
    bool has(const char* name) const { return std::filesystem::exists(directory.path() / name); }
};

inline Finished quantize(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "quantize");
    return tq_run(std::move(arguments));
}

inline void check_refused(const Finished& finished, int status, const char* why) {
    CHECK(finished.status == status);
    CHECK_MESSAGE(contains(finished.error, why), finished.error);
}

// The output of tq-run for a few ids on the CPU.
inline std::string logits(const std::string& model) {
    return output(tq_run({"logits", "-m", model, "--device", "cpu", "--ids", "1,2,3,4,5,6,7,8"}));
}

} // namespace tq::test
