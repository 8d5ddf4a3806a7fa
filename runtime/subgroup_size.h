// The subgroup size of a kernel. A driver may use another size than it reports unless a pipeline requires one: Mesa's for Intel
// compiles in 16 lanes what it reports as a subgroup of 32.
#pragma once
#include "runtime/capabilities.h"
#include "runtime/shader.h"

namespace tq {

// Returns Capabilities::kernel_subgroup_size of a device that lets a pipeline choose any size between a minimum and a maximum:
// the device's own, but at most 64; AMD's with both run 32 lanes at a time. On Intel's the minimum: 8, or 16 from Xe2 on, since
// all lanes share the registers, and with twice as many lanes the kernels spill.
uint32_t preferred_subgroup_size(const Capabilities& device);

// Returns the size of the subgroups that multiply cooperative matrices. It is the device's own; on Intel's devices that minimum,
// which is also the width of their matrix units. AMD's devices that have both sizes need fewer registers for a matrix in 64
// lanes.
uint32_t matrix_subgroup_size(const Capabilities& device);

// Returns the subgroup size that every pipeline of `shader` requires on `device`. Returns 0 if the kernel has no subgroup
// operations, so the driver may choose.
uint32_t subgroup_size_of(const AnyShader& shader, const Capabilities& device);

} // namespace tq
