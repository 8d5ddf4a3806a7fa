// A device proves itself before a model runs on it: a child runs conformance's rows of what the model needs. If a row is wrong,
// crashes or hangs, simpler kernels are tried, and the CPU last. The verdict is kept for each device, driver and build.
#pragma once
#include "runtime/capabilities.h"
#include <filesystem>
#include <memory>
#include <string>

namespace tq {

class Console;
class Device;
namespace conformance {
struct Subject;
}

// A device that was chosen and is not open yet.
struct ChosenDevice {
    Capabilities capabilities;
    std::string selector;                         // its index
    std::shared_ptr<const void> vulkan = nullptr; // keeps the instance for it, which takes time to make
};

struct Verdict {
    std::string profile; // the device profile whose kernels passed; empty: none did
    std::string failure; // of the profiles before: the first row that failed, and why; empty: the first profile passed
    size_t rows = 0;     // that passed
    double seconds = 0;
    bool known = false; // from an earlier run

    bool usable() const { return !profile.empty(); }
};

enum class Believe { everything, success }; // success: a verdict that names a failure is found anew

// Returns the verdict. If it is not known, it is found out now, with progress after a second.
Verdict prove(const ChosenDevice& chosen, const conformance::Subject& subject, Console& console,
              Believe believe = Believe::everything);

// Returns the file of the verdicts about a device; empty if there is no cache directory.
std::filesystem::path verdicts_path(const Capabilities& device);

// Opens the device as its verdict allows. If that is not all that the device has, a line on standard error says so. Returns
// nullptr if no kernels passed: the CPU. If proving_seconds() is 0 (tools/tq-run/engine/drivers.h), it opens the device at once.
// Throws LoadStopped on Ctrl-C.
std::unique_ptr<Device> open_proven(const ChosenDevice& chosen, const conformance::Subject& subject, Console& console);

// Opens a device, as it is, that a child has opened and run a kernel on just before: for commands that measure a device or are
// about its faults. Throws Error if the child did not survive that; LoadStopped on Ctrl-C.
std::unique_ptr<Device> open_tried(const ChosenDevice& chosen);

} // namespace tq
