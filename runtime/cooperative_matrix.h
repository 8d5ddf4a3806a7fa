// The parts of VK_KHR_cooperative_matrix that are used here, under names of our own: the extension is newer than the oldest
// supported headers. Numbers and layouts are those of the Vulkan registry. Private to runtime/.
#pragma once
#include "runtime/capabilities.h"
#include "runtime/vulkan.h"

namespace tq {

inline constexpr const char* cooperative_matrix_extension = "VK_KHR_cooperative_matrix";

// VkPhysicalDeviceCooperativeMatrixFeaturesKHR
struct CooperativeMatrixFeatures {
    VkStructureType type = VkStructureType(1000506000);
    void* pNext = nullptr;
    VkBool32 matrices = VK_FALSE, robust_access = VK_FALSE;
};

// Returns the largest product of fp16 matrices with sides of 8 and 16 that a subgroup of the device computes with sums in fp32:
// 16 x 16 x 16 on most GPUs, 8 x 16 x 16 on Intel's, 8 x 8 x 8 in Mesa's software driver; zeros if it has none. Only for
// devices whose subgroups have a known size and can be required to be full: otherwise the invocations that share a matrix are not
// defined.
MatrixShape cooperative_matrix_shape(VkPhysicalDevice device);

} // namespace tq
