// The parts of VK_KHR_cooperative_matrix that are used here, under names of our own: the extension is newer than the oldest
// supported headers. Numbers and layouts are those of the Vulkan registry. Private to runtime/.
#pragma once
#include "runtime/vulkan.h"

namespace tq {

inline constexpr const char* cooperative_matrix_extension = "VK_KHR_cooperative_matrix";

// VkPhysicalDeviceCooperativeMatrixFeaturesKHR
struct CooperativeMatrixFeatures {
    VkStructureType type = VkStructureType(1000506000);
    void* pNext = nullptr;
    VkBool32 matrices = VK_FALSE, robust_access = VK_FALSE;
};

// Returns the side of square fp16 matrices that the device multiplies in a subgroup, with sums in fp32: 16 as on GPUs, else 8
// as in Mesa's software driver; 0 for neither. Only for devices whose subgroups have a known size and can be required to be
// full: otherwise the invocations that share a matrix are not defined.
uint32_t cooperative_matrix_side(VkPhysicalDevice device);

} // namespace tq
