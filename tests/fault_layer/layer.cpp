// VK_LAYER_TQ_fault, a Vulkan layer for tests: calls that fail when the environment says so, and kernels that compute wrongly.
//   TQ_FAULT=vkQueueSubmit:3=DEVICE_LOST     the calls that fail (tests/fault_layer/plan.h)
//   TQ_FAULT_LOG=FILE                        gets, at the end, the number of calls of each function and the failed ones
//   TQ_FAULT_SHADERS=DIRECTORY               the kernels as the build compiled them, NAME.spv each
//   TQ_FAULT_KERNEL=NAME                     the one that is changed
//   TQ_FAULT_REWRITE=FMul:2=FAdd             its change (tests/fault_layer/rewrite.h)
//   TQ_FAULT_REWRITE=CRASH                   or HANG: so does the driver when it makes this kernel's pipeline
//   TQ_FAULT_REPLACE=DIRECTORY               each NAME.spv in there replaces that kernel
//   TQ_FAULT_DISCRETE=1                      devices say that they are graphics cards, and get those' kernels
// The loader takes it by VK_LAYER_PATH=DIRECTORY and VK_INSTANCE_LAYERS=VK_LAYER_TQ_fault.
#include "tests/fault_layer/plan.h"
#include "tests/fault_layer/rewrite.h"
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vulkan/vk_layer.h>

namespace tq::fault {
namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

// The functions of the next layer, or of the driver, for one device.
struct Device {
    VkDevice handle = VK_NULL_HANDLE;
    PFN_vkGetDeviceProcAddr get = nullptr;
    PFN_vkDeviceWaitIdle wait_idle = nullptr;
    PFN_vkDestroyFence destroy_fence = nullptr;
    PFN_vkVoidFunction functions[size_t(Function::count)]{};
};

using Code = std::vector<uint32_t>; // the words of a SPIR-V module

[[noreturn]] void refuse(const char* variable, const std::string& why) {
    std::fprintf(stderr, "fault layer: %s: %s\n", variable, why.c_str());
    std::_Exit(99);
}

Code read_kernel(const char* variable, const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (bytes.empty()) refuse(variable, "cannot read " + path.string());
    Code code(bytes.size() / 4);
    std::memcpy(code.data(), bytes.data(), code.size() * 4);
    return code;
}

// The SPIR-V that drivers get instead, by the SPIR-V that the program passes.
std::map<Code, Code> broken_kernels() {
    std::map<Code, Code> broken;
    const std::filesystem::path shaders = variable("TQ_FAULT_SHADERS");
    const std::string kernel = variable("TQ_FAULT_KERNEL"), change = variable("TQ_FAULT_REWRITE");
    if (kernel.empty() != change.empty()) refuse("TQ_FAULT_KERNEL", "it goes together with TQ_FAULT_REWRITE");
    if (!kernel.empty() && change != "CRASH" && change != "HANG") {
        const Code right = read_kernel("TQ_FAULT_KERNEL", shaders / (kernel + ".spv"));
        broken[right] = rewritten(right, change);
    }
    const std::string replacements = variable("TQ_FAULT_REPLACE");
    if (replacements.empty()) return broken;
    std::error_code error;
    for (const auto& one : std::filesystem::directory_iterator(replacements, error))
        broken[read_kernel("TQ_FAULT_REPLACE", shaders / one.path().filename())] = read_kernel("TQ_FAULT_REPLACE", one.path());
    if (error) refuse("TQ_FAULT_REPLACE", "cannot read " + replacements);
    return broken;
}

// The SPIR-V whose pipeline crashes or hangs its creator; empty: none.
Code fatal_kernel() {
    const std::string change = variable("TQ_FAULT_REWRITE");
    if (change != "CRASH" && change != "HANG") return {};
    return read_kernel("TQ_FAULT_KERNEL",
                       std::filesystem::path(variable("TQ_FAULT_SHADERS")) / (variable("TQ_FAULT_KERNEL") + ".spv"));
}

// Exists as long as the process: a program may create and destroy several instances.
struct State {
    std::mutex mutex;
    Plan plan{variable("TQ_FAULT")};
    std::string log = variable("TQ_FAULT_LOG");
    const std::map<Code, Code> broken = broken_kernels();
    const Code fatal = fatal_kernel();
    std::set<VkShaderModule> fatal_modules;
    std::map<void*, PFN_vkGetInstanceProcAddr> instances;
    std::map<void*, PFN_vkEnumeratePhysicalDevices> enumerators; // of the next layer
    std::map<void*, PFN_vkGetPhysicalDeviceProperties> properties;
    const bool discrete = !variable("TQ_FAULT_DISCRETE").empty();
    std::map<void*, Device> devices;
    std::set<VkFence> signalled; // fences whose reset failed
    uint64_t changed = 0;        // modules
};

State& state() {
    static State& one = *new State;
    return one;
}

__attribute__((destructor)) void write_log() {
    if (state().log.empty()) return;
    std::ofstream(state().log) << state().plan.report() << "changed " << state().changed << '\n';
}

// Instances, devices, queues and command buffers begin with a pointer that all objects of one instance, or device, share.
template <class Handle> void* key(Handle handle) { return *reinterpret_cast<void**>(handle); }

template <class Handle> Device device_of(Handle handle) {
    const std::lock_guard lock(state().mutex);
    return state().devices.at(key(handle));
}

// Ends the process as a driver's bad pointer does, or never returns.
void crash_or_hang(bool crashes) {
    if (crashes) {
        std::signal(SIGSEGV, SIG_DFL);
        std::raise(SIGSEGV);
    }
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

std::optional<Fault> strike(Function function) {
    std::optional<Fault> fault;
    {
        const std::lock_guard lock(state().mutex);
        fault = state().plan.strike(function);
    }
    if (fault && (fault->crashes || (fault->hangs && function != Function::vkWaitForFences))) crash_or_hang(fault->crashes);
    return fault;
}

// A lost device runs nothing any more, and the objects that it used may be freed: so this waits for the work submitted to it.
void settle(const Device& device, Function function, const Fault& fault) {
    const bool waits = function == Function::vkWaitForFences || function == Function::vkQueueWaitIdle;
    if (fault.result == VK_ERROR_DEVICE_LOST || waits) device.wait_idle(device.handle);
}

// Waits until the timeout of a wait that never succeeds is over.
void hang(uint32_t, const VkFence*, VkBool32, uint64_t timeout_ns) {
    constexpr uint64_t year_ns = 365ull * 24 * 3600 * 1'000'000'000;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(timeout_ns, year_ns)));
}

template <Function function, class Pointer> struct Wrapped;
template <Function function, class First, class... Rest> struct Wrapped<function, VkResult(VKAPI_PTR*)(First, Rest...)> {
    static VKAPI_ATTR VkResult VKAPI_CALL call(First first, Rest... rest) {
        const Device device = device_of(first);
        if (const auto fault = strike(function)) {
            settle(device, function, *fault);
            if constexpr (function == Function::vkWaitForFences)
                if (fault->hangs) hang(rest...);
            return fault->result;
        }
        return reinterpret_cast<VkResult(VKAPI_PTR*)(First, Rest...)>(device.functions[size_t(function)])(first, rest...);
    }
};

VKAPI_ATTR VkResult VKAPI_CALL create_shader_module(VkDevice device, const VkShaderModuleCreateInfo* info,
                                                    const VkAllocationCallbacks* allocator, VkShaderModule* module) {
    using Next = Wrapped<Function::vkCreateShaderModule, PFN_vkCreateShaderModule>;
    const Code code(info->pCode, info->pCode + info->codeSize / 4);
    if (!state().fatal.empty() && code == state().fatal) {
        const VkResult result = Next::call(device, info, allocator, module);
        const std::lock_guard lock(state().mutex);
        if (result == VK_SUCCESS) state().fatal_modules.insert(*module);
        return result;
    }
    const auto found = state().broken.find(code);
    if (found == state().broken.end()) return Next::call(device, info, allocator, module);
    VkShaderModuleCreateInfo other = *info;
    other.pCode = found->second.data();
    other.codeSize = found->second.size() * 4;
    {
        const std::lock_guard lock(state().mutex);
        state().changed++;
    }
    return Next::call(device, &other, allocator, module);
}

VKAPI_ATTR VkResult VKAPI_CALL create_compute_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                        const VkComputePipelineCreateInfo* infos,
                                                        const VkAllocationCallbacks* allocator, VkPipeline* pipelines) {
    bool fatal = false;
    {
        const std::lock_guard lock(state().mutex);
        for (const auto& info : std::span(infos, count)) fatal = fatal || state().fatal_modules.contains(info.stage.module);
    }
    if (fatal) crash_or_hang(variable("TQ_FAULT_REWRITE") == "CRASH");
    return Wrapped<Function::vkCreateComputePipelines, PFN_vkCreateComputePipelines>::call(device, cache, count, infos, allocator,
                                                                                           pipelines);
}

VKAPI_ATTR VkResult VKAPI_CALL reset_fences(VkDevice device, uint32_t count, const VkFence* fences) {
    const VkResult result = Wrapped<Function::vkResetFences, PFN_vkResetFences>::call(device, count, fences);
    const std::lock_guard lock(state().mutex);
    for (const VkFence fence : std::span(fences, count))
        if (result == VK_SUCCESS)
            state().signalled.erase(fence);
        else
            state().signalled.insert(fence);
    return result;
}

// A signalled fence claims that the work submitted with it has already run, and drivers fail in different ways: here it always
// ends the process.
VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue queue, uint32_t count, const VkSubmitInfo* submits, VkFence fence) {
    {
        const std::lock_guard lock(state().mutex);
        if (state().signalled.contains(fence)) {
            std::fprintf(stderr, "fault layer: work is submitted with a fence whose reset failed\n");
            std::abort();
        }
    }
    return Wrapped<Function::vkQueueSubmit, PFN_vkQueueSubmit>::call(queue, count, submits, fence);
}

VKAPI_ATTR void VKAPI_CALL destroy_fence(VkDevice device, VkFence fence, const VkAllocationCallbacks* allocator) {
    {
        const std::lock_guard lock(state().mutex);
        state().signalled.erase(fence);
    }
    device_of(device).destroy_fence(device, fence, allocator);
}

// Finds the structure that the loader passes from layer to layer when an instance or a device is created.
template <class Link> Link* link_info(const void* next, VkStructureType type) {
    auto* link = static_cast<Link*>(const_cast<void*>(next));
    while (link && !(link->sType == type && link->function == VK_LAYER_LINK_INFO))
        link = static_cast<Link*>(const_cast<void*>(link->pNext));
    return link;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* allocator,
                                               VkInstance* instance) {
    auto* link = link_info<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    if (const auto fault = strike(Function::vkCreateInstance)) return fault->result;
    const auto get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const VkResult result = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"))(info, allocator, instance);
    if (result != VK_SUCCESS) return result;
    const std::lock_guard lock(state().mutex);
    state().instances[key(*instance)] = get;
    // Asked for later, the loader may give the first layer's.
    state().enumerators[key(*instance)] =
        reinterpret_cast<PFN_vkEnumeratePhysicalDevices>(get(*instance, "vkEnumeratePhysicalDevices"));
    state().properties[key(*instance)] =
        reinterpret_cast<PFN_vkGetPhysicalDeviceProperties>(get(*instance, "vkGetPhysicalDeviceProperties"));
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL enumerate_devices(VkInstance instance, uint32_t* count, VkPhysicalDevice* devices) {
    if (const auto fault = strike(Function::vkEnumeratePhysicalDevices)) return fault->result;
    PFN_vkEnumeratePhysicalDevices next = nullptr;
    {
        const std::lock_guard lock(state().mutex);
        next = state().enumerators.at(key(instance));
    }
    return next(instance, count, devices);
}

VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical, VkPhysicalDeviceProperties* properties) {
    PFN_vkGetPhysicalDeviceProperties next = nullptr;
    {
        const std::lock_guard lock(state().mutex);
        next = state().properties.at(key(physical));
    }
    next(physical, properties);
    if (state().discrete) properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

PFN_vkVoidFunction get_device_function(VkDevice device, const char* name);

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* allocator, VkDevice* handle) {
    auto* link = link_info<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    if (const auto fault = strike(Function::vkCreateDevice)) return fault->result;
    const auto get_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    Device device;
    device.get = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const auto create = reinterpret_cast<PFN_vkCreateDevice>(get_instance(nullptr, "vkCreateDevice"));
    const VkResult result = create(physical, info, allocator, handle);
    if (result != VK_SUCCESS) return result;
    device.handle = *handle;
    device.wait_idle = reinterpret_cast<PFN_vkDeviceWaitIdle>(device.get(*handle, "vkDeviceWaitIdle"));
    device.destroy_fence = reinterpret_cast<PFN_vkDestroyFence>(device.get(*handle, "vkDestroyFence"));
#define TQ_FAULT_NEXT(name) device.functions[size_t(Function::name)] = device.get(*handle, #name);
    TQ_FAULT_FUNCTIONS(TQ_FAULT_NEXT)
#undef TQ_FAULT_NEXT
    const std::lock_guard lock(state().mutex);
    state().devices[key(*handle)] = device;
    return result;
}

// Returns the layer's function if the name is one of a device's functions; else nullptr.
PFN_vkVoidFunction own_device_function(std::string_view name) {
    if (name == "vkGetDeviceProcAddr") return reinterpret_cast<PFN_vkVoidFunction>(get_device_function);
    if (name == "vkCreateShaderModule") return reinterpret_cast<PFN_vkVoidFunction>(create_shader_module);
    if (name == "vkCreateComputePipelines") return reinterpret_cast<PFN_vkVoidFunction>(create_compute_pipelines);
    if (name == "vkResetFences") return reinterpret_cast<PFN_vkVoidFunction>(reset_fences);
    if (name == "vkQueueSubmit") return reinterpret_cast<PFN_vkVoidFunction>(queue_submit);
    if (name == "vkDestroyFence") return reinterpret_cast<PFN_vkVoidFunction>(destroy_fence);
#define TQ_FAULT_OWN(function)                                                                                                   \
    if (name == #function) return reinterpret_cast<PFN_vkVoidFunction>(Wrapped<Function::function, PFN_##function>::call);
    TQ_FAULT_FUNCTIONS(TQ_FAULT_OWN)
#undef TQ_FAULT_OWN
    return nullptr;
}

PFN_vkVoidFunction get_device_function(VkDevice device, const char* name) {
    if (const auto own = own_device_function(name)) return own;
    return device_of(device).get(device, name);
}

PFN_vkVoidFunction get_instance_function(VkInstance instance, const char* name) {
    const std::string_view wanted = name;
    if (wanted == "vkGetInstanceProcAddr") return reinterpret_cast<PFN_vkVoidFunction>(get_instance_function);
    if (wanted == "vkCreateInstance") return reinterpret_cast<PFN_vkVoidFunction>(create_instance);
    if (wanted == "vkCreateDevice") return reinterpret_cast<PFN_vkVoidFunction>(create_device);
    if (wanted == "vkEnumeratePhysicalDevices") return reinterpret_cast<PFN_vkVoidFunction>(enumerate_devices);
    if (wanted == "vkGetPhysicalDeviceProperties") return reinterpret_cast<PFN_vkVoidFunction>(get_properties);
    if (const auto own = own_device_function(wanted)) return own;
    if (!instance) return nullptr;
    const std::lock_guard lock(state().mutex);
    return state().instances.at(key(instance))(instance, name);
}

} // namespace
} // namespace tq::fault

// The only function that the loader looks up by name.
extern "C" __attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* interface) {
    interface->loaderLayerInterfaceVersion = std::min(interface->loaderLayerInterfaceVersion, 2u);
    interface->pfnGetInstanceProcAddr = tq::fault::get_instance_function;
    interface->pfnGetDeviceProcAddr = tq::fault::get_device_function;
    interface->pfnGetPhysicalDeviceProcAddr = nullptr;
    return VK_SUCCESS;
}
