// Number of a device's shader cores. Tunings choose by it how far to split work. Vulkan has no such number. NVIDIA (SMs), AMD
// (compute units) and Arm have extensions for it; for others the ids of known devices say it, or a number that is usual for the
// vendor. 0 is "unknown".
#include "runtime/shader_cores.h"
#include "runtime/instance.h"

namespace tq {
namespace {

// Returns the device's properties of one extension; zeros if the device does not have it.
template <class Properties> Properties read(VkPhysicalDevice device, const char* extension, VkStructureType type) {
    Properties out{type};
    VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &out};
    if (has_extension(device, extension)) vkGetPhysicalDeviceProperties2(device, &properties);
    return out;
}

} // namespace

uint32_t read_shader_cores(VkPhysicalDevice device) {
    const auto nvidia = read<VkPhysicalDeviceShaderSMBuiltinsPropertiesNV>(
        device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
    if (nvidia.shaderSMCount != 0) return nvidia.shaderSMCount;
    const auto active = read<VkPhysicalDeviceShaderCoreProperties2AMD>(
        device, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD);
    if (active.activeComputeUnitCount != 0) return active.activeComputeUnitCount;
    const auto amd = read<VkPhysicalDeviceShaderCorePropertiesAMD>(device, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME,
                                                                   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD);
    const uint32_t units = amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray;
    if (units != 0) return units;
    const auto arm = read<VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM>(
        device, VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM);
    if (arm.shaderCoreCount != 0) return arm.shaderCoreCount;
    VkPhysicalDeviceProperties basic;
    vkGetPhysicalDeviceProperties(device, &basic);
    return known_shader_cores(basic.vendorID, basic.deviceID);
}

uint32_t known_shader_cores(uint32_t vendor, uint32_t device) {
    constexpr uint32_t intel = 0x8086, qualcomm = 0x5143, broadcom = 0x14e4;
    if (vendor == qualcomm) return 12; // Adreno has at most a dozen
    if (vendor == broadcom) return 1;
    if (vendor != intel) return 0;
    switch (device) {
    case 0x5690:            // Arc A770M
    case 0x56a0: return 64; // A770
    case 0x56a1: return 56; // A750
    case 0x56a2: return 48; // A580
    case 0x56a5: return 16; // A380
    case 0x56a6: return 12; // A310
    case 0xe20b: return 40; // B580
    case 0xe20c: return 36; // B570
    default: return 16;
    }
}

} // namespace tq
