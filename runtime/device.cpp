// Choosing a device and setting it up.
#include "runtime/device.h"
#include "base/ensure.h"
#include "base/error.h"
#include "runtime/device_impl.h"
#include <algorithm>
#include <cctype>

namespace tq {
namespace {

std::vector<Capabilities> read_all(const std::vector<VkPhysicalDevice>& devices) {
    std::vector<Capabilities> out;
    for (const VkPhysicalDevice device : devices) out.push_back(read_capabilities(device));
    return out;
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = char(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

std::string listing(const std::vector<Capabilities>& devices) {
    std::string out;
    for (size_t i = 0; i < devices.size(); i++)
        out += fmt::format("{}{}: {} ({})", i ? ", " : "", i, devices[i].name, name(devices[i].type));
    return out;
}

// A device that computes by itself before the processor's imitation of one, then the one with the most memory.
bool better(const Capabilities& a, const Capabilities& b) {
    if (a.unusable.empty() != b.unusable.empty()) return a.unusable.empty();
    if (a.type != b.type) return a.type < b.type;
    return a.memory_bytes > b.memory_bytes;
}

size_t select(const std::vector<Capabilities>& devices, std::string_view selector) {
    const auto best = std::min_element(devices.begin(), devices.end(), better);
    if (selector.empty()) return size_t(best - devices.begin());
    if (selector.find_first_not_of("0123456789") == std::string_view::npos && selector.size() < 4) {
        const size_t index = std::stoul(std::string(selector));
        if (index < devices.size()) return index;
    }
    for (size_t i = 0; i < devices.size(); i++)
        if (lower(devices[i].name).find(lower(selector)) != std::string::npos) return i;
    fail("no device matches \"{}\"; there are {}", selector, listing(devices));
}

// Everything that read_capabilities reports is switched on, and nothing else.
VkDevice make_device(VkPhysicalDevice physical, uint32_t family, const Capabilities& has) {
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
    for (const char* extension : {"VK_KHR_portability_subset", VK_EXT_MEMORY_BUDGET_EXTENSION_NAME})
        if (has_extension(physical, extension)) extensions.push_back(extension);

    const float priority = 1;
    const VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, family, 1, &priority};
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

OwnedBuffer make_buffer(VkDevice device, uint64_t bytes) {
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkBuffer buffer;
    check(vkCreateBuffer(device, &info, nullptr, &buffer), "creating a buffer");
    return {device, buffer};
}

VkMemoryRequirements requirements(VkDevice device, VkBuffer buffer) {
    VkMemoryRequirements need;
    vkGetBufferMemoryRequirements(device, buffer, &need);
    return need;
}

// All our buffers have the same usage, so Vulkan promises that one of them tells the memory types of all.
void make_arenas(Device::Impl& device) {
    VkPhysicalDeviceMemoryProperties properties;
    vkGetPhysicalDeviceMemoryProperties(device.physical, &properties);
    const uint32_t allowed = requirements(device.handle, make_buffer(device.handle, 16)).memoryTypeBits;
    for (const Memory memory : {Memory::device, Memory::upload, Memory::readback})
        device.arenas.try_emplace(memory, device.physical, device.handle, choose_memory_type(properties, allowed, memory).value(),
                                  device.capabilities.allocation_bytes);
}

} // namespace

std::vector<Capabilities> list_devices() {
    const std::shared_ptr<Instance> vulkan = instance();
    return read_all(vulkan->devices());
}

Device::Device(std::string_view selector) : impl_(std::make_unique<Impl>()) {
    Impl& device = *impl_;
    device.instance = instance();
    const std::vector<VkPhysicalDevice> found = device.instance->devices();
    const std::vector<Capabilities> all = read_all(found);
    const size_t chosen = select(all, selector);
    if (!all[chosen].unusable.empty())
        fail("device {} ({}) cannot be used: {}; there are {}", chosen, all[chosen].name, all[chosen].unusable, listing(all));
    device.physical = found[chosen];
    device.capabilities = all[chosen];
    device.family = compute_family(device.physical);
    device.handle = device.owner.handle = make_device(device.physical, device.family, device.capabilities);
    vkGetDeviceQueue(device.handle, device.family, 0, &device.queue);
    make_arenas(device);
    device.pipelines.emplace(device.handle, device.capabilities, device.instance->debug_utils());
}

Device::~Device() = default;

const Capabilities& Device::capabilities() const { return impl_->capabilities; }

Buffer Device::allocate(std::string label, uint64_t bytes, Memory memory) {
    Impl& device = *impl_;
    ENSURE(bytes > 0, "{}", label);
    if (bytes > device.capabilities.allocation_bytes)
        fail("{} needs one buffer of {} bytes, and {} allows at most {}: use a smaller context (-c) or a smaller model, or "
             "another "
             "device (--device)",
             label, bytes, device.capabilities.name, device.capabilities.allocation_bytes);
    OwnedBuffer buffer = make_buffer(device.handle, bytes);
    if (device.instance->debug_utils()) {
        const VkDebugUtilsObjectNameInfoEXT named{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT, nullptr,
                                                  VK_OBJECT_TYPE_BUFFER, (uint64_t)(VkBuffer)buffer, label.c_str()};
        vkSetDebugUtilsObjectNameEXT(device.handle, &named);
    }
    Arena& arena = device.arenas.at(memory);
    const Arena::Piece piece = arena.take(requirements(device.handle, buffer), label);
    auto made = std::make_unique<Buffer::Impl>(arena, piece, std::move(buffer), bytes);
    check(vkBindBufferMemory(device.handle, made->handle, piece.block->memory, piece.offset), "binding memory");
    return Buffer(std::move(made));
}

uint64_t Device::allocated_bytes() const { return impl_->arenas.at(Memory::device).allocated_bytes(); }

std::vector<ProfileRow> Device::take_profile() {
    std::vector<ProfileRow> rows;
    for (auto& [kernel, row] : impl_->profile) rows.push_back(std::move(row));
    impl_->profile.clear();
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
    return rows;
}

} // namespace tq
