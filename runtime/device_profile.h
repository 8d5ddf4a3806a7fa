// Device profiles clamp the limits that are reported for a device, so that the paths for lesser devices run on any device.
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

// Returns all profiles; the first, "none", changes nothing.
std::span<const DeviceProfile> device_profiles();

// Returns the profile called `name`. If `name` is empty, returns the one that $TQ_DEVICE_PROFILE names, or "none" if that is
// unset too. Throws Error with the names of all profiles.
const DeviceProfile& find_device_profile(std::string_view name = {});

} // namespace tq
