// The number of GPU cores that run workgroups independently (streaming multiprocessors, compute units).
#pragma once
#include "runtime/vulkan.h"
#include <cstdint>

namespace tq {

// Returns the number that the driver reports, else known_shader_cores(). 0: not known.
uint32_t read_shader_cores(VkPhysicalDevice device);

// Returns the number, by PCI ids, for GPUs whose drivers do not report it; 0: not known. Intel's are counted in halves of an Xe
// core, 8 vector engines each, which hold about as much work as the cores of others; those not listed are integrated GPUs and
// count as 16, the most that they have.
uint32_t known_shader_cores(uint32_t vendor, uint32_t device);

} // namespace tq
