// What all kernels of a pass share, in one buffer: shaders/context.glsl.
#pragma once
#include "model/config.h"
#include "runtime/device.h"

namespace tq::gpu {

// With the rotary table of `positions` positions; the header before it (plan.h) is written by every step. Throws Error where that
// is more than the device can bind.
Buffer make_context(Device& device, const Config& config, uint32_t positions);

} // namespace tq::gpu
