// VK_KHR_cooperative_matrix, which is newer than the oldest headers we build with: what we need of it, under names of ours.
// Numbers and layouts are those of the Vulkan registry. Private to runtime/.
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

// The side of square matrices of fp16 that the device multiplies in a subgroup, with sums in fp32: 16 as GPUs have it, else 8 as
// Mesa's software driver does; 0 for neither. Only for devices whose subgroups have a known size and can be required to be full:
// else nothing says which invocations share a matrix.
uint32_t cooperative_matrix_side(VkPhysicalDevice device);

} // namespace tq
