// Reads a physical device's properties and features into Capabilities.
// An extension's structure is chained only if the device has the extension. A structure that was not chained stays zero, which
// reads as "no" or 0.
#include "runtime/capabilities.h"
#include "runtime/cooperative_matrix.h"
#include "runtime/instance.h"
#include "runtime/memory.h"
#include "runtime/shader.h"
#include "runtime/shader_cores.h"
#include "runtime/subgroup_size.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace tq {
namespace {

// Inserts `entry` after `head` in a chain of Vulkan structs.
template <class Head, class Entry> void chain(Head& head, Entry& entry) {
    entry.pNext = head.pNext;
    head.pNext = &entry;
}

DeviceType type_of(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return DeviceType::discrete;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return DeviceType::integrated;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return DeviceType::virtual_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return DeviceType::cpu;
    default: return DeviceType::other;
    }
}

void read_limits(const VkPhysicalDeviceLimits& limits, Capabilities& out) {
    out.allocation_count = limits.maxMemoryAllocationCount;
    out.storage_range_bytes = limits.maxStorageBufferRange;
    out.texel_range_bytes = uint64_t(limits.maxTexelBufferElements) * 16;
    out.storage_alignment = uint32_t(std::max<VkDeviceSize>( // kernels read 16-byte words
        {limits.minStorageBufferOffsetAlignment, limits.minTexelBufferOffsetAlignment, 16}));
    out.max_workgroup_invocations = limits.maxComputeWorkGroupInvocations;
    std::copy_n(limits.maxComputeWorkGroupSize, 3, out.max_workgroup_size.begin());
    std::copy_n(limits.maxComputeWorkGroupCount, 3, out.max_workgroup_count.begin());
    out.shared_memory_bytes = limits.maxComputeSharedMemorySize;
    out.push_constant_bytes = limits.maxPushConstantsSize;
    // All buffers of a kernel are in one set of one stage, so four limits apply.
    out.storage_buffers_per_stage = std::min(
        {limits.maxPerStageDescriptorStorageBuffers, limits.maxDescriptorSetStorageBuffers, limits.maxPerStageResources});
    out.timestamp_ns = double(limits.timestampPeriod);
}

// Kernels with subgroup operations must know their size when they are compiled. It is known if the driver lets a pipeline choose
// it, or has only one; otherwise kernel_subgroup_size stays 0, and kernels without subgroup operations run.
void read_subgroup_sizes(VkPhysicalDevice device, Capabilities& out) {
    out.min_subgroup_size = out.max_subgroup_size = out.subgroup_size;
    if (!has_extension(device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) return;
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT control{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &control};
    vkGetPhysicalDeviceFeatures2(device, &features);
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sizes{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes};
    vkGetPhysicalDeviceProperties2(device, &properties);
    out.min_subgroup_size = sizes.minSubgroupSize;
    out.max_subgroup_size = sizes.maxSubgroupSize;
    out.full_subgroups = control.computeFullSubgroups;
    out.subgroup_size_choice =
        control.subgroupSizeControl && (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    if (out.subgroup_size_choice || out.min_subgroup_size == out.max_subgroup_size)
        out.kernel_subgroup_size = preferred_subgroup_size(out);
}

void read_properties(VkPhysicalDevice device, Capabilities& out) {
    VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceVulkan11Properties vulkan11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceVulkan12Properties vulkan12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceMaintenance4PropertiesKHR sizes{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES_KHR};
    chain(properties, vulkan11);
    chain(properties, vulkan12);
    if (has_extension(device, VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) chain(properties, sizes);
    VkPhysicalDeviceShaderIntegerDotProductPropertiesKHR dot{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES_KHR};
    if (has_extension(device, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) chain(properties, dot);
    vkGetPhysicalDeviceProperties2(device, &properties);

    out.int8_dot_accelerated = dot.integerDotProduct4x8BitPackedSignedAccelerated;
    out.driver_name = vulkan12.driverName;
    out.driver_info = vulkan12.driverInfo;
    read_limits(properties.properties.limits, out);
    out.allocation_bytes = vulkan11.maxMemoryAllocationSize;
    if (sizes.maxBufferSize) out.allocation_bytes = std::min(out.allocation_bytes, sizes.maxBufferSize);

    out.subgroup_size = vulkan11.subgroupSize;
    read_subgroup_sizes(device, out);
    out.shader_cores = read_shader_cores(device);
    if (vulkan11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) {
        out.subgroup_arithmetic = vulkan11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
        out.subgroup_shuffle = vulkan11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    }
}

void read_features(VkPhysicalDevice device, Capabilities& out) {
    VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    VkPhysicalDeviceVulkan11Features vulkan11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
    VkPhysicalDeviceVulkan12Features vulkan12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR};
    chain(features, vulkan11);
    chain(features, vulkan12);
    if (has_extension(device, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) chain(features, dot);
    vkGetPhysicalDeviceFeatures2(device, &features);
    out.float16 = vulkan12.shaderFloat16;
    out.int8 = vulkan12.shaderInt8;
    out.int16 = features.features.shaderInt16;
    out.int8_dot_product = dot.shaderIntegerDotProduct;
    out.storage_8bit = vulkan12.storageBuffer8BitAccess;
    out.storage_16bit = vulkan11.storageBuffer16BitAccess;
    // A matrix is spread over the invocations of one full subgroup of a known size, its elements are fp16, and its kernels need
    // Vulkan's memory model. Without all three the shape stays empty, whatever the extension says.
    const bool subgroups = out.full_subgroups && (out.subgroup_size_choice || out.min_subgroup_size == out.max_subgroup_size);
    const bool memory_model = vulkan12.vulkanMemoryModel && vulkan12.vulkanMemoryModelDeviceScope;
    if (vulkan12.shaderFloat16 && memory_model && subgroups) out.matrix = cooperative_matrix_shape(device);
    out.cooperative_matrix = out.matrix != MatrixShape{};
}

// The heap that counts is the largest one of the device. Discrete GPUs may have a second one, a window of 256 MiB that the host
// can see. Without VK_EXT_memory_budget nobody says what other programs have taken, so all of the heap counts as free.
void read_memory(VkPhysicalDevice device, Capabilities& out) {
    VkPhysicalDeviceMemoryProperties2 memory{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    const VkPhysicalDeviceMemoryProperties& all = memory.memoryProperties;
    vkGetPhysicalDeviceMemoryProperties2(device, &memory);
    const auto type = choose_memory_type(all, ~0u, Memory::device);
    if (!type || !choose_memory_type(all, ~0u, Memory::upload)) {
        out.unusable = "it offers no memory";
        return; // asked for its budget, RADV without its hardware (RADV_FORCE_FAMILY=gfx1201) crashes
    }
    out.unified_memory = all.memoryTypes[*type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;

    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    const bool has_budget = has_extension(device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (has_budget) chain(memory, budget);
    vkGetPhysicalDeviceMemoryProperties2(device, &memory);
    for (uint32_t heap = 0; heap < all.memoryHeapCount; heap++) {
        const bool own = all.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
        if (!own || all.memoryHeaps[heap].size <= out.memory_bytes) continue;
        out.memory_bytes = all.memoryHeaps[heap].size;
        out.memory_budget_bytes = has_budget ? budget.heapBudget[heap] : out.memory_bytes;
        out.memory_used_bytes = has_budget ? budget.heapUsage[heap] : 0;
    }
}

void read_queue(VkPhysicalDevice device, uint32_t family, Capabilities& out) {
    uint32_t count = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
    const uint32_t bits = families[family].timestampValidBits;
    if (bits == 0) out.timestamp_ns = 0;
    out.timestamp_mask = bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
}

} // namespace

const char* name(DeviceType type) {
    switch (type) {
    case DeviceType::discrete: return "discrete";
    case DeviceType::integrated: return "integrated";
    case DeviceType::virtual_gpu: return "virtual";
    case DeviceType::cpu: return "cpu";
    case DeviceType::other: break;
    }
    return "other";
}

// If the list grew between the two calls, the second returns VK_INCOMPLETE, which is above 0, and the elements that were read are
// good.
bool has_extension(VkPhysicalDevice device, const char* name) {
    uint32_t count = 0;
    if (vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr) != VK_SUCCESS) return false;
    std::vector<VkExtensionProperties> found(count);
    if (vkEnumerateDeviceExtensionProperties(device, nullptr, &count, found.data()) < 0) return false;
    found.resize(count);
    return std::any_of(found.begin(), found.end(), [&](const auto& one) { return std::strcmp(one.extensionName, name) == 0; });
}

uint32_t compute_family(VkPhysicalDevice device) {
    uint32_t count = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
    for (uint32_t family = 0; family < count; family++)
        if (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) return family;
    return UINT32_MAX;
}

// A device that cannot be used keeps its name and a reason, for lists and messages; nothing is asked of it that a driver below
// Vulkan 1.2 lacks. The profile clamps the driver's values. Ranges stay below 2 GiB, whatever the driver allows, so that 32 bits
// index their bytes.
Capabilities read_capabilities(VkPhysicalDevice device, const DeviceProfile& profile) {
    Capabilities out;
    out.profile = profile.name;
    VkPhysicalDeviceProperties basic;
    vkGetPhysicalDeviceProperties(device, &basic);
    out.name = basic.deviceName;
    out.type = type_of(basic.deviceType);
    out.api_version = basic.apiVersion;
    out.driver_version = basic.driverVersion;
    out.vendor_id = basic.vendorID;
    out.device_id = basic.deviceID;
    std::copy_n(basic.pipelineCacheUUID, 16, out.pipeline_cache_uuid.begin());
    const uint32_t family = compute_family(device);
    if (out.api_version < VK_API_VERSION_1_2)
        out.unusable = fmt::format("its driver offers Vulkan {}.{}, and 1.2 is needed", VK_API_VERSION_MAJOR(out.api_version),
                                   VK_API_VERSION_MINOR(out.api_version));
    else if (family == UINT32_MAX)
        out.unusable = "it has no compute queue";
    if (!out.unusable.empty()) return out;

    read_properties(device, out);
    read_features(device, out);
    read_memory(device, out);
    read_queue(device, family, out);
    profile.clamp(out);
    const uint64_t addressable = (uint64_t(1) << 31) - out.storage_alignment;
    out.storage_range_bytes = std::min({out.storage_range_bytes, out.allocation_bytes, addressable}) / 16 * 16;
    out.texel_range_bytes = std::min(out.texel_range_bytes, out.storage_range_bytes);
    out.compiles = out.storage_buffers_per_stage >= max_bindings;
    if (!out.compiles)
        out.unusable =
            fmt::format("it gives a kernel at most {} buffers, and {} are needed", out.storage_buffers_per_stage, max_bindings);
    return out;
}

} // namespace tq
