// Shared by tests of tq-run quantize.
#pragma once
#include "tests/support/child_process.h"
#include <doctest/doctest.h>

namespace tq::test {

// The output of a command that succeeds.
inline std::string output(const Finished& finished) {
    CAPTURE(finished.error);
    CHECK(finished.status == 0);
    return finished.output;
}

// The output of tq-run for a few ids on the CPU.
inline std::string logits(const std::string& model) {
    return output(tq_run({"logits", "-m", model, "--device", "cpu", "--ids", "1,2,3,4,5,6,7,8"}));
}

} // namespace tq::test
