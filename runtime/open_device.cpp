// Choosing a device and opening it.
// Capabilities, identities and physical devices are in the loader's order here, so one index means the same device in all of
// them, and it is what --device takes. A device that was named and cannot be used is an error: another one is never taken in its
// place. To compile (Use::compile) less is needed than to run: a driver without its hardware has no memory, but a compiler.
#include "runtime/open_device.h"
#include "base/error.h"
#include "base/printable.h"
#include "runtime/cooperative_matrix.h"
#include "runtime/device.h"
#include "runtime/wrong_device.h"
#include <algorithm>

namespace tq {
namespace {

std::vector<Capabilities> read_all(const std::vector<VkPhysicalDevice>& devices, const DeviceProfile& profile) {
    std::vector<Capabilities> out;
    for (const VkPhysicalDevice device : devices) out.push_back(read_capabilities(device, profile));
    return out;
}

// Two equal cards may have one UUID in some drivers. They are told apart by their number among those with this UUID.
std::vector<DeviceIdentity> identify(const std::vector<VkPhysicalDevice>& devices) {
    std::vector<DeviceIdentity> out;
    for (const VkPhysicalDevice device : devices) {
        VkPhysicalDeviceIDProperties id{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
        VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &id};
        VkPhysicalDeviceProperties basic;
        vkGetPhysicalDeviceProperties(device, &basic);
        if (basic.apiVersion >= VK_API_VERSION_1_1) vkGetPhysicalDeviceProperties2(device, &properties);
        DeviceIdentity one;
        std::copy_n(id.deviceUUID, VK_UUID_SIZE, one.uuid.begin());
        one.number = uint32_t(std::ranges::count(out, one.uuid, &DeviceIdentity::uuid));
        out.push_back(one);
    }
    return out;
}

std::string listing(const std::vector<Capabilities>& devices) {
    std::string out = "the devices here: ";
    for (size_t i = 0; i < devices.size(); i++)
        out += fmt::format("{} = {}{}; ", i, printable(devices[i].name, 120),
                           devices[i].type == DeviceType::cpu ? ", software" : "");
    return out + "cpu";
}

// Prefers usable devices, then by type (discrete, integrated, virtual, cpu), then the one with the most memory.
bool better(const Capabilities& a, const Capabilities& b) {
    if (a.unusable.empty() != b.unusable.empty()) return a.unusable.empty();
    if (a.type != b.type) return a.type < b.type;
    return a.memory_bytes > b.memory_bytes;
}

// --device takes an index, as the list shows it, with or without "vulkan" before it, or a part of the name. A number with three
// digits that is no index may be a part of a name ("580").
size_t select_device(const std::vector<Capabilities>& devices, std::string_view selector) {
    const auto best = std::min_element(devices.begin(), devices.end(), better);
    if (selector.empty()) return size_t(best - devices.begin());
    const std::string_view prefix = "vulkan"; // llama.cpp calls its devices Vulkan0, Vulkan1, ...
    const std::string requested = lowercase(selector),
                      number = requested.substr(requested.starts_with(prefix) ? prefix.size() : 0);
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos && number.size() < 4) {
        const size_t index = std::stoul(number);
        if (index < devices.size()) return index;
        if (number != requested || number.size() < 3) // "580" may be part of a name
            throw WrongDevice(fmt::format("there is no device {}; {}", index, listing(devices)));
    }
    for (size_t i = 0; i < devices.size(); i++)
        if (lowercase(devices[i].name).find(requested) != std::string::npos) return i;
    if (requested == "cpu") throw WrongDevice("this needs a Vulkan device, which cpu is not; " + listing(devices));
    throw WrongDevice(fmt::format("no device matches \"{}\"; {}", printable(selector), listing(devices)));
}

[[noreturn]] void fail_unusable(const std::vector<Capabilities>& devices, size_t which) {
    fail("device {} ({}) cannot be used: {}; {}", which, printable(devices[which].name, 120), devices[which].unusable,
         listing(devices));
}

// Enables everything that read_capabilities reports, and nothing else.
// Feature structures form a chain by pNext, into which each optional one is put only if the device has it: a structure of an
// extension that is not enabled is invalid, and a feature that is not there makes vkCreateDevice fail. One queue of the first
// family that computes is enough, since passes follow each other.
VkDevice make_device(VkPhysicalDevice physical, uint32_t family, const Capabilities& has, bool statistics) {
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR, nullptr, VK_TRUE};
    VkPhysicalDeviceVulkan12Features vulkan12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features vulkan11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &vulkan12};
    VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &vulkan11};
    vulkan12.shaderFloat16 = has.float16;
    vulkan12.shaderInt8 = has.int8;
    vulkan12.storageBuffer8BitAccess = has.storage_8bit;
    vulkan11.storageBuffer16BitAccess = has.storage_16bit;
    features.features.shaderInt16 = has.int16;
    std::vector<const char*> extensions;
    if (has.int8_dot_product) {
        vulkan12.pNext = &dot;
        extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    }
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, vulkan12.pNext, VK_TRUE};
    if (statistics) {
        vulkan12.pNext = &executables;
        extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    }
    CooperativeMatrixFeatures matrices{.matrices = VK_TRUE};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
                                                         nullptr, has.subgroup_size_choice, has.full_subgroups};
    if (has.subgroup_size_choice || has.full_subgroups) {
        sizes.pNext = vulkan12.pNext;
        vulkan12.pNext = &sizes;
        extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    }
    if (has.cooperative_matrix) {
        matrices.pNext = vulkan12.pNext;
        vulkan12.pNext = &matrices;
        vulkan12.vulkanMemoryModel = VK_TRUE;
        vulkan12.vulkanMemoryModelDeviceScope = VK_TRUE; // with vulkanMemoryModel on, other kernels' atomics need it
        extensions.push_back(cooperative_matrix_extension);
    }
    for (const char* extension :
         {"VK_KHR_portability_subset", VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, VK_EXT_PIPELINE_CREATION_FEEDBACK_EXTENSION_NAME})
        if (has_extension(physical, extension)) extensions.push_back(extension);

    const float priority = 1;
    const VkDeviceQueueCreateInfo queue{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                        .pNext = nullptr,
                                        .flags = 0,
                                        .queueFamilyIndex = family,
                                        .queueCount = 1,
                                        .pQueuePriorities = &priority};
    VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
    info.pNext = &features;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = uint32_t(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    VkDevice device;
    check(vkCreateDevice(physical, &info, nullptr, &device), "opening the device");
    return device;
}

bool has_statistics(VkPhysicalDevice physical) {
    if (!has_extension(physical, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) return false;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &executables};
    vkGetPhysicalDeviceFeatures2(physical, &features);
    return executables.pipelineExecutableInfo;
}

} // namespace

std::vector<Capabilities> list_devices(std::string_view profile) {
    const DeviceProfile& clamped = find_device_profile(profile);
    const std::shared_ptr<Instance> vulkan = instance();
    return read_all(vulkan->devices(), clamped);
}

std::vector<DeviceIdentity> list_identities() { return identify(instance()->devices()); }

size_t find_device(const std::vector<Capabilities>& devices, std::string_view selector) {
    const size_t chosen = select_device(devices, selector);
    if (!devices[chosen].unusable.empty()) fail_unusable(devices, chosen);
    return chosen;
}

std::shared_ptr<const void> hold_vulkan() { return instance(); }

OpenDevice open_device(std::string_view selector, std::string_view profile, Use use) {
    const DeviceProfile& clamped = find_device_profile(profile);
    const std::shared_ptr<Instance> vulkan = instance();
    const std::vector<VkPhysicalDevice> found = vulkan->devices();
    const std::vector<Capabilities> all = read_all(found, clamped);
    const size_t chosen = select_device(all, selector);
    const Capabilities& device = all[chosen];
    if (use == Use::compile ? !device.compiles : !device.unusable.empty()) fail_unusable(all, chosen);
    const VkPhysicalDevice physical = found[chosen];
    const uint32_t family = compute_family(physical);
    const bool statistics = use == Use::compile && has_statistics(physical);
    const bool feedback = has_extension(physical, VK_EXT_PIPELINE_CREATION_FEEDBACK_EXTENSION_NAME);
    return {.instance = vulkan,
            .physical = physical,
            .identity = identify(found)[chosen],
            .capabilities = device,
            .family = family,
            .statistics = statistics,
            .feedback = feedback,
            .handle = DeviceHandle(make_device(physical, family, device, statistics))};
}

} // namespace tq
