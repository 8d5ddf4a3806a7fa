// The devices of an engine: opened when it starts, and again when one is lost.
#pragma once
#include "runtime/device_state.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/placement.h"
#include <chrono>
#include <vector>

namespace tq {

// The devices that an engine has lost so far.
struct LostDevices {
    struct Loss {
        DeviceIdentity device;
        std::chrono::steady_clock::time_point at; // the last time
    };
    std::vector<Loss> losses;
    std::vector<DeviceIdentity> left_out; // that are not opened any more
};

std::string describe_device(Device& device); // with its driver

// Opens the chosen devices that prove themselves for the model. If none does, returns a single nullptr. A command about devices
// themselves (WithoutGpu::software) takes them as they are, once a child has tried them (open_tried). Throws Error; LoadStopped.
std::vector<std::unique_ptr<Device>> open_devices(const std::vector<ChosenDevice>& chosen, const conformance::Subject& subject,
                                                  Console& console, WithoutGpu otherwise);

// Opens the devices again that this rank had. It takes no others, because other ranks have their own parts. Throws Error.
Placing renew_devices(Engine& engine, const ForwardOptions& options);

// Opens an engine's devices again after one was lost. Devices that were lost twice within a minute, gave no answer in time
// (is_stuck) or cannot be opened are left out. If none is left, takes the next GPU of this machine that proves itself, else the
// CPU. Says so on standard error. The model is not on the devices any more.
Placing replace_devices(Engine& engine, const ForwardOptions& options);

} // namespace tq
