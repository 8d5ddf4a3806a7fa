// The data that all kernels of a pass share, in one buffer: shaders/context.glsl.
#pragma once
#include "model/config.h"
#include "runtime/device.h"

namespace tq::gpu {

// Makes the buffer, with the rotary table of `positions` positions; every step writes the header before the table (plan.h).
// Throws Error where it exceeds the device's limit of a binding.
Buffer make_context(Device& device, const Config& config, uint32_t positions);

} // namespace tq::gpu
