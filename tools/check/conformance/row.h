// A row: one kernel in one variant at one shape, compared with its reference.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <vector>

namespace tq::conformance {

class Rig;

struct WordRange {
    size_t begin, count;
};

// The result of a row. `error` and `limit` are in the row's own measure.
struct Outcome {
    bool passed = true;
    double error = 0, limit = 0;
    std::string reason; // why it failed; of a row that passed, a note (the first line is shown)
};

// The worse of two: the one that failed, else the one closer to its limit.
Outcome worse(Outcome a, Outcome b);

struct Row {
    std::string kernel, variant, shape;
    std::function<Outcome(Rig&)> run{};
    uint64_t device_bytes = 0; // the memory it needs; the row is left out if the device has less
    bool full_only = false;    // long: only with --full
    std::string lacks{};       // the missing feature of the device or the build: the row is left out, for this reason

    std::string name() const { return kernel + " | " + variant + " | " + shape; }
};

} // namespace tq::conformance
