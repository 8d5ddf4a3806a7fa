// Which size the subgroups of a kernel have. A driver may take another one than it says where nothing is required of it: Mesa's
// for Intel compiles in 16 lanes what it calls a subgroup of 32.
#pragma once
#include "runtime/capabilities.h"
#include "runtime/shader.h"

namespace tq {

// Capabilities::kernel_subgroup_size of a device that gives a pipeline any size between its least and most: its own, but at most
// 64; AMD's with both run 32 lanes at a time. On Intel's the least: 8, or 16 from Xe2 on, since what lanes there are share the
// registers, and in twice as many the kernels spill.
uint32_t preferred_subgroup_size(const Capabilities& device);

// The subgroup size that every pipeline of `shader` requires on `device`; 0 where the kernel has no subgroup operations, and the
// driver may choose.
uint32_t subgroup_size_of(const AnyShader& shader, const Capabilities& device);

} // namespace tq
