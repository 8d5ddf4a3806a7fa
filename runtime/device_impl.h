// The implementation of Device. Private to runtime/.
#pragma once
#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/open_device.h"
#include "runtime/pipelines.h"
#include <atomic>
#include <map>
#include <mutex>
#include <optional>

namespace tq {

struct Device::Impl : OpenDevice {
    VkQueue queue{};
    std::map<Memory, Arena> arenas;
    std::optional<Pipelines> pipelines;
    std::map<std::string, ProfileRow> profile;

    // Submits to the queue; several threads may. `fence` is signalled when the commands are done. OutOfMemory: nothing was
    // submitted.
    void submit(std::span<const VkCommandBuffer> commands, VkFence fence);
    std::mutex submitting;

    // wait() waits for the commands of a fence. It throws DeviceLost, also if they take longer than timeout_ns. wait_to_end()
    // never throws, not even if the device is lost, so destructors can call it.
    void wait(VkFence fence);
    void wait_to_end(VkFence fence);
    const uint64_t timeout_ns;
    std::atomic<bool> lost = false, stuck = false;

    BarrierForm barrier_form() const { return capabilities.narrow_barriers ? BarrierForm::narrow : BarrierForm::full; }

    size_t allocations() const {
        size_t count = 0;
        for (const auto& [memory, arena] : arenas) count += arena.blocks();
        return count;
    }

    Impl(std::string_view selector, std::string_view profile);

  private:
    void give_up();
};

} // namespace tq
