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

bool is_ours(const Properties& p) {
    const auto fits = [](uint32_t side) { return side == 8 || side == 16; }; // the kernels' tiles consist of these
    return fits(p.m) && fits(p.n) && fits(p.k) && p.a == float16 && p.b == float16 && p.c == float32 && p.result == float32 &&
           !p.saturating && p.scope == subgroup_scope;
}

MatrixShape largest_offered(VkPhysicalDevice device) {
    const auto get = reinterpret_cast<GetProperties>(
        vkGetInstanceProcAddr(volkGetLoadedInstance(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    uint32_t count = 0;
    if (!get || get(device, &count, nullptr) != VK_SUCCESS) return {};
    std::vector<Properties> found(count);
    if (get(device, &count, found.data()) < 0) return {};
    found.resize(std::min<size_t>(count, found.size()));
    MatrixShape largest;
    for (const Properties& one : found)
        if (is_ours(one) && one.m * one.n * one.k > largest.m * largest.n * largest.k) largest = {one.m, one.n, one.k};
    return largest;
}

} // namespace

MatrixShape cooperative_matrix_shape(VkPhysicalDevice device) {
    if (validated_by_older(VK_MAKE_API_VERSION(0, 1, 3, 255))) return {};
    if (!has_extension(device, cooperative_matrix_extension)) return {};
    CooperativeMatrixFeatures offered;
    VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &offered};
    vkGetPhysicalDeviceFeatures2(device, &features);
    return offered.matrices ? largest_offered(device) : MatrixShape{};
}

} // namespace tq
