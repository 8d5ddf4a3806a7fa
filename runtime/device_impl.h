// The implementation of Device. Private to runtime/.
#pragma once
#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/open_device.h"
#include "runtime/pipelines.h"
#include <map>
#include <mutex>
#include <optional>

namespace tq {

struct Device::Impl : OpenDevice {
    VkQueue queue{};
    std::map<Memory, Arena> arenas;
    std::optional<Pipelines> pipelines;
    std::map<std::string, ProfileRow> profile;

    // Submits to the queue; several threads may. `fence` is signalled when the commands are done.
    void submit(std::span<const VkCommandBuffer> commands, VkFence fence) {
        const std::lock_guard lock(submitting);
        tq::submit(handle, queue, commands, fence);
    }
    std::mutex submitting;

    size_t allocations() const {
        size_t count = 0;
        for (const auto& [memory, arena] : arenas) count += arena.blocks();
        return count;
    }

    Impl(std::string_view selector, std::string_view profile) : OpenDevice(open_device(selector, profile, Use::run)) {}
};

} // namespace tq
