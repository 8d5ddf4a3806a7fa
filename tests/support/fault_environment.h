// Runs of tq-run in which Vulkan calls fail, or a kernel computes wrongly, by the layer in tests/fault_layer.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tq::test {

struct Faults {
    std::string calls;                  // TQ_FAULT, such as "vkQueueSubmit:3=DEVICE_LOST"
    std::string kernel, rewrite;        // the kernel's name, and TQ_FAULT_REWRITE, such as "FMul:2=FAdd"
    std::filesystem::path replacements; // TQ_FAULT_REPLACE, a directory of kernels' SPIR-V
    std::filesystem::path log;          // TQ_FAULT_LOG
};

bool has_fault_layer();        // it is built on Linux
std::string crashing_driver(); // the manifest of a driver that crashes; with TQ_FAULT_DRIVER=hang it hangs

// The variables for Command::environment. Without the validation layer, which does not expect a failing driver.
std::vector<std::string> fault_environment(const Faults& faults);

} // namespace tq::test
