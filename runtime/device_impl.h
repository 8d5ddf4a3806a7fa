// What a Device is made of. Private to runtime/.
#pragma once
#include "runtime/device.h"
#include "runtime/instance.h"
#include "runtime/memory.h"
#include "runtime/pipelines.h"
#include <array>
#include <map>
#include <optional>

namespace tq {

struct DeviceHandle {
    VkDevice handle{};
    ~DeviceHandle() {
        if (handle) vkDestroyDevice(handle, nullptr);
    }
};

struct Device::Impl {
    std::shared_ptr<Instance> instance;
    VkPhysicalDevice physical{};
    Capabilities capabilities;
    DeviceHandle owner;
    VkDevice handle{};
    uint32_t family = 0; // of the queue
    VkQueue queue{};
    std::map<Memory, Arena> arenas;
    std::optional<Pipelines> pipelines;
    std::map<std::string, ProfileRow> profile;
};

} // namespace tq
