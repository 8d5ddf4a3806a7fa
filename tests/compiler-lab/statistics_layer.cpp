// VK_LAYER_TQ_statistics, a Vulkan layer of the compiler lab: what a driver says of every compute pipeline that a program names
// by VK_EXT_debug_utils. For each it writes into the directory TQ_STATISTICS the file NAME@CONSTANTS.txt, with a line "name =
// value" for every statistic, and the files NAME@CONSTANTS.REPRESENTATION of what the driver shows of its code
// (VK_KHR_pipeline_executable_properties). CONSTANTS are the values of the specialisation constants, as pipelines may share a
// name. tests/compiler-lab/peer compiles and uses it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

namespace {

// The functions of the next layer, or the driver.
struct Functions {
    VkDevice device;
    PFN_vkGetDeviceProcAddr get;
    template <class Function> Function of(const char* name) const { return reinterpret_cast<Function>(get(device, name)); }
};

std::mutex mutex;
std::map<void*, PFN_vkGetInstanceProcAddr> instances;
std::map<void*, Functions> devices;
std::map<VkPipeline, std::string> constants;

// An instance and its physical devices, or a device and its queues, begin with the same pointer.
template <class Handle> void* key(Handle handle) { return *reinterpret_cast<void**>(handle); }
template <class Handle> Functions functions_of(Handle handle) {
    const std::lock_guard lock(mutex);
    return devices.at(key(handle));
}

void write_representations(const Functions& next, const VkPipelineExecutableInfoKHR& executable, const std::string& path) {
    const auto get =
        next.of<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>("vkGetPipelineExecutableInternalRepresentationsKHR");
    uint32_t count = 0;
    get(next.device, &executable, &count, nullptr);
    std::vector<VkPipelineExecutableInternalRepresentationKHR> all(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR, nullptr, "", "", VK_FALSE, 0, nullptr});
    get(next.device, &executable, &count, all.data());
    std::vector<std::string> texts(count);
    for (uint32_t i = 0; i < count; i++) {
        texts[i].resize(all[i].dataSize);
        all[i].pData = texts[i].data();
    }
    get(next.device, &executable, &count, all.data());
    for (uint32_t i = 0; i < count; i++) {
        std::string name = all[i].name;
        std::replace(name.begin(), name.end(), '/', '-');
        std::ofstream(path + "." + name) << texts[i].c_str();
    }
}

void write_statistics(const Functions& next, const VkPipelineExecutableInfoKHR& executable, std::ostream& file) {
    const auto get = next.of<PFN_vkGetPipelineExecutableStatisticsKHR>("vkGetPipelineExecutableStatisticsKHR");
    uint32_t count = 0;
    if (get(next.device, &executable, &count, nullptr) != VK_SUCCESS) return;
    std::vector<VkPipelineExecutableStatisticKHR> all(count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR,
                                                              nullptr,
                                                              "",
                                                              "",
                                                              VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR,
                                                              {}});
    get(next.device, &executable, &count, all.data());
    for (const auto& one : all) {
        file << one.name << " = ";
        switch (one.format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: file << one.value.b32; break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: file << one.value.i64; break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: file << one.value.u64; break;
        default: file << one.value.f64;
        }
        file << '\n';
    }
}

void write(const Functions& next, VkPipeline pipeline, const std::string& name) {
    const char* directory = std::getenv("TQ_STATISTICS");
    if (!directory) return;
    const VkPipelineInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, nullptr, pipeline};
    VkPipelineExecutablePropertiesKHR properties{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR, nullptr, 0, "", "", 0};
    uint32_t one = 1; // a compute pipeline has one executable on every driver of the lab
    next.of<PFN_vkGetPipelineExecutablePropertiesKHR>("vkGetPipelineExecutablePropertiesKHR")(next.device, &info, &one,
                                                                                              &properties);
    std::string path = std::string(directory) + "/" + name + "@";
    {
        const std::lock_guard lock(mutex);
        path += constants[pipeline];
    }
    const VkPipelineExecutableInfoKHR executable{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline, 0};
    std::ofstream file(path + ".txt");
    file << "Subgroup size = " << properties.subgroupSize << '\n';
    write_statistics(next, executable, file);
    write_representations(next, executable, path);
}

std::string constants_of(const VkSpecializationInfo* info) {
    std::string values;
    for (uint32_t i = 0; info && i < info->mapEntryCount; i++) {
        uint32_t value = 0;
        std::memcpy(&value, static_cast<const char*>(info->pData) + info->pMapEntries[i].offset,
                    std::min(info->pMapEntries[i].size, sizeof value));
        values += (i ? "," : "") + std::to_string(value);
    }
    return values;
}

VKAPI_ATTR VkResult VKAPI_CALL create_compute_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                        const VkComputePipelineCreateInfo* infos,
                                                        const VkAllocationCallbacks* allocator, VkPipeline* pipelines) {
    std::vector<VkComputePipelineCreateInfo> captured(infos, infos + count);
    for (auto& info : captured)
        info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    const auto create = functions_of(device).of<PFN_vkCreateComputePipelines>("vkCreateComputePipelines");
    const VkResult result = create(device, cache, count, captured.data(), allocator, pipelines);
    const std::lock_guard lock(mutex);
    for (uint32_t i = 0; i < count; i++) constants[pipelines[i]] = constants_of(infos[i].stage.pSpecializationInfo);
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL set_name(VkDevice device, const VkDebugUtilsObjectNameInfoEXT* info) {
    if (info->objectType == VK_OBJECT_TYPE_PIPELINE && info->pObjectName)
        write(functions_of(device), reinterpret_cast<VkPipeline>(info->objectHandle), info->pObjectName);
    return VK_SUCCESS;
}

// Returns the link that the loader passes from layer to layer when an instance or a device is created.
template <class Link> Link* link_of(const void* next, VkStructureType type) {
    auto* link = static_cast<Link*>(const_cast<void*>(next));
    while (link && (link->sType != type || link->function != VK_LAYER_LINK_INFO))
        link = static_cast<Link*>(const_cast<void*>(link->pNext));
    return link;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* allocator,
                                               VkInstance* instance) {
    auto* link = link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    const auto get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const VkResult result = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"))(info, allocator, instance);
    const std::lock_guard lock(mutex);
    if (result == VK_SUCCESS) instances[key(*instance)] = get;
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* allocator, VkDevice* device) {
    auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    const auto get_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    const auto get = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR feature{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, const_cast<void*>(info->pNext), VK_TRUE};
    std::vector<const char*> extensions(info->ppEnabledExtensionNames,
                                        info->ppEnabledExtensionNames + info->enabledExtensionCount);
    VkDeviceCreateInfo more = *info;
    const bool already = std::any_of(extensions.begin(), extensions.end(), [](const char* name) {
        return std::strcmp(name, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME) == 0;
    });
    if (!already) {
        extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
        more.pNext = &feature;
        more.enabledExtensionCount = uint32_t(extensions.size());
        more.ppEnabledExtensionNames = extensions.data();
    }
    const VkResult result =
        reinterpret_cast<PFN_vkCreateDevice>(get_instance(nullptr, "vkCreateDevice"))(physical, &more, allocator, device);
    const std::lock_guard lock(mutex);
    if (result == VK_SUCCESS) devices[key(*device)] = {*device, get};
    return result;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device, const char* name);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance instance, const char* name);

template <class Function> PFN_vkVoidFunction erased(Function function) { return reinterpret_cast<PFN_vkVoidFunction>(function); }

PFN_vkVoidFunction own_function(const std::string& name) {
    if (name == "vkGetInstanceProcAddr") return erased(get_instance_function);
    if (name == "vkGetDeviceProcAddr") return erased(get_device_function);
    if (name == "vkCreateInstance") return erased(create_instance);
    if (name == "vkCreateDevice") return erased(create_device);
    if (name == "vkCreateComputePipelines") return erased(create_compute_pipelines);
    if (name == "vkSetDebugUtilsObjectNameEXT") return erased(set_name);
    return nullptr;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device, const char* name) {
    if (const auto own = own_function(name)) return own;
    return functions_of(device).get(device, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance instance, const char* name) {
    if (const auto own = own_function(name)) return own;
    if (!instance) return nullptr;
    const std::lock_guard lock(mutex);
    return instances.at(key(instance))(instance, name);
}

} // namespace

extern "C" __attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* interface) {
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = get_instance_function;
    interface->pfnGetDeviceProcAddr = get_device_function;
    interface->pfnGetPhysicalDeviceProcAddr = nullptr;
    return VK_SUCCESS;
}
