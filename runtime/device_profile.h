// Device profiles: what the program believes about a device, clamped, so that the paths for lesser devices run on any device.
#pragma once
#include "runtime/capabilities.h"
#include <span>
#include <string_view>

namespace tq {

struct DeviceProfile {
    const char* name;
    const char* description;      // one line
    void (*clamp)(Capabilities&); // never raises a limit, never adds a feature
};

// All of them; the first, "none", changes nothing.
std::span<const DeviceProfile> device_profiles();

// The profile called `name`, or the one that $TQ_DEVICE_PROFILE names where `name` is empty ("none" where that is unset, too).
// Throws Error with the names there are.
const DeviceProfile& find_device_profile(std::string_view name = {});

} // namespace tq
