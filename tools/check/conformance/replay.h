// Runs a recorded row once more: on another device or driver, or with another module for one of its kernels.
#pragma once
#include "tools/check/conformance/recording.h"
#include "tools/check/conformance/rig.h"
#include <functional>

namespace tq::conformance {

// Replaces the module of the kernel that the file is named after, or of the only one. Throws Error if that has no kernel, or
// another interface.
void replace_module(Recording& recording, const std::filesystem::path& file);

struct Replayed {
    size_t compared = 0, wrong = 0, left_out = 0; // left_out: of values that the row computed from buffers
};

// Runs the steps and compares what the recording knows the place of; tells each in a line. Throws Error, DeviceLost.
Replayed replay(Rig& rig, const Recording& recording, const std::function<void(const std::string&)>& tell);

} // namespace tq::conformance
