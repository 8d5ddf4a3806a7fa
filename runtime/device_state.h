// Tells which device one is, also among twins of the same name, and whether it still answers, so that lost devices can be opened
// again.
#pragma once
#include "runtime/device.h"
#include <array>

namespace tq {

// The same each time that the device is listed.
struct DeviceIdentity {
    std::array<uint8_t, 16> uuid{};
    uint32_t number = 0; // among devices to which their drivers give the same uuid

    bool operator==(const DeviceIdentity&) const = default;
};

// Returns those of list_devices(), in its order. Throws as that does.
std::vector<DeviceIdentity> list_identities();
DeviceIdentity identity(const Device& device);

// is_lost(): DeviceLost was thrown for the device. is_stuck(): it was thrown because the device gave no answer within
// $TQ_GPU_TIMEOUT seconds (by default 600; 0: no limit). A stuck device may still write into its memory, which stays allocated
// until the process ends.
bool is_lost(const Device& device);
bool is_stuck(const Device& device);

} // namespace tq
