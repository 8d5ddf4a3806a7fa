// Choosing a physical device and opening it, for running kernels (Device) and for only building them (Compiler). Private to
// runtime/.
#pragma once
#include "runtime/device_state.h"
#include "runtime/instance.h"
#include "runtime/vulkan.h"
#include <memory>
#include <string_view>
#include <utility>

namespace tq {

struct DeviceHandle {
    VkDevice handle{};

    DeviceHandle() = default;
    explicit DeviceHandle(VkDevice opened) : handle(opened) {}
    DeviceHandle(DeviceHandle&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    ~DeviceHandle() {
        if (handle && !is_abandoned(handle)) vkDestroyDevice(handle, nullptr);
    }
    operator VkDevice() const { return handle; }
};

enum class Use { run, compile };

struct OpenDevice {
    std::shared_ptr<Instance> instance;
    VkPhysicalDevice physical;
    DeviceIdentity identity;
    Capabilities capabilities;
    uint32_t family; // the first queue family that computes
    bool statistics; // VK_KHR_pipeline_executable_properties is enabled: for Use::compile, if the driver has it
    bool feedback;   // VK_EXT_pipeline_creation_feedback is enabled: if the driver has it
    DeviceHandle handle;
};

// selector and profile as in Device. Throws WrongDevice (runtime/wrong_device.h) with a list of the devices when none matches,
// Error when the match cannot be used.
OpenDevice open_device(std::string_view selector, std::string_view profile, Use use);

} // namespace tq
