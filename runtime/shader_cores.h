// How many cores a GPU has that run workgroups by themselves.
#pragma once
#include "runtime/vulkan.h"
#include <cstdint>

namespace tq {

// By what its driver says, else by known_shader_cores(). 0: not known.
uint32_t read_shader_cores(VkPhysicalDevice device);

// Of GPUs whose drivers do not say it, by PCI numbers; 0: not known. Intel's are counted in halves of an Xe core, 8 vector
// engines each, which hold about as much as others' cores; those not listed are parts of a processor, and have no more than is
// said for them.
uint32_t known_shader_cores(uint32_t vendor, uint32_t device);

} // namespace tq
