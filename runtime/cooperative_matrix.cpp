#include "runtime/cooperative_matrix.h"
#include "runtime/instance.h"
#include <algorithm>
#include <vector>

namespace tq {
namespace {

// VkCooperativeMatrixPropertiesKHR
struct Properties {
    VkStructureType type = VkStructureType(1000506001);
    void* pNext = nullptr;
    uint32_t m = 0, n = 0, k = 0, a = 0, b = 0, c = 0,
             result = 0; // result = c + a b, a of m x k; a to result: VkComponentTypeKHR
    VkBool32 saturating = VK_FALSE;
    uint32_t scope = 0; // VkScopeKHR
};
constexpr uint32_t float16 = 0, float32 = 1, subgroup_scope = 3;
using GetProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, Properties*);

bool is_ours(const Properties& p, uint32_t side) {
    return p.m == side && p.n == side && p.k == side && p.a == float16 && p.b == float16 && p.c == float32 &&
           p.result == float32 && !p.saturating && p.scope == subgroup_scope;
}

uint32_t offered_side(VkPhysicalDevice device) {
    const auto get = reinterpret_cast<GetProperties>(
        vkGetInstanceProcAddr(volkGetLoadedInstance(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    uint32_t count = 0;
    if (!get || get(device, &count, nullptr) != VK_SUCCESS) return 0;
    std::vector<Properties> found(count);
    if (get(device, &count, found.data()) < 0) return 0;
    found.resize(std::min<size_t>(count, found.size()));
    for (const uint32_t side : {16u, 8u})
        if (std::ranges::any_of(found, [&](const Properties& one) { return is_ours(one, side); })) return side;
    return 0;
}

} // namespace

uint32_t cooperative_matrix_side(VkPhysicalDevice device) {
    if (validated_by_older(VK_MAKE_API_VERSION(0, 1, 3, 255))) return 0;
    if (!has_extension(device, cooperative_matrix_extension)) return 0;
    CooperativeMatrixFeatures offered;
    VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &offered};
    vkGetPhysicalDeviceFeatures2(device, &features);
    return offered.matrices ? offered_side(device) : 0;
}

} // namespace tq
