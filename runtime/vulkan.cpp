// Vulkan results as sentences, and the few sequences of calls that more than one file needs.
#include "runtime/vulkan.h"
#include "base/error.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace tq {

const char* name(VkResult result) {
    switch (result) {
#define TQ_RESULT(result)                                                                                                        \
    case result: return #result
        TQ_RESULT(VK_SUCCESS);
        TQ_RESULT(VK_NOT_READY);
        TQ_RESULT(VK_TIMEOUT);
        TQ_RESULT(VK_INCOMPLETE);
        TQ_RESULT(VK_ERROR_OUT_OF_HOST_MEMORY);
        TQ_RESULT(VK_ERROR_OUT_OF_DEVICE_MEMORY);
        TQ_RESULT(VK_ERROR_INITIALIZATION_FAILED);
        TQ_RESULT(VK_ERROR_DEVICE_LOST);
        TQ_RESULT(VK_ERROR_MEMORY_MAP_FAILED);
        TQ_RESULT(VK_ERROR_LAYER_NOT_PRESENT);
        TQ_RESULT(VK_ERROR_EXTENSION_NOT_PRESENT);
        TQ_RESULT(VK_ERROR_FEATURE_NOT_PRESENT);
        TQ_RESULT(VK_ERROR_INCOMPATIBLE_DRIVER);
        TQ_RESULT(VK_ERROR_TOO_MANY_OBJECTS);
        TQ_RESULT(VK_ERROR_FRAGMENTED_POOL);
        TQ_RESULT(VK_ERROR_UNKNOWN);
        TQ_RESULT(VK_ERROR_OUT_OF_POOL_MEMORY);
#undef TQ_RESULT
    default: return "an unknown result";
    }
}

// Each failure becomes the exception that says what the caller may do: DeviceLost (open the device anew), OutOfMemory (use less),
// Error (give up). `doing` completes the sentence "failed while ...".
void check(VkResult result, const char* doing) {
    if (result == VK_SUCCESS) return;
    if (result == VK_ERROR_DEVICE_LOST)
        throw DeviceLost(
            fmt::format("the GPU stopped answering while {} (VK_ERROR_DEVICE_LOST): the driver reset it, which loses all "
                        "of its memory; start again, and if it happens again update the driver or choose another device "
                        "with --device",
                        doing));
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
        fail_out_of_memory("out of memory while {} ({}): close other programs, or use a smaller context (-c) or a smaller model",
                           doing, name(result));
    fail("the Vulkan driver failed while {} ({}, {}): update the driver or choose another device with --device", doing,
         name(result), int(result));
}

// Hardly ever is there one, so that asking costs next to nothing.
// Devices that hang are abandoned: destroying them or their objects would wait for the GPU, perhaps forever. So each owner of an
// object asks is_abandoned() before it destroys it. The list is never freed, because owners may be static objects that end after
// it.
static std::atomic<size_t> abandoned_count = 0;
static std::mutex abandoned_mutex;
static std::vector<VkDevice>& abandoned() {
    static auto& all = *new std::vector<VkDevice>; // outlives every static object
    return all;
}

void abandon(VkDevice device) {
    const std::lock_guard lock(abandoned_mutex);
    abandoned().push_back(device);
    abandoned_count++;
}

bool is_abandoned(VkDevice device) {
    if (abandoned_count == 0) return false;
    const std::lock_guard lock(abandoned_mutex);
    return std::ranges::find(abandoned(), device) != abandoned().end();
}

OwnedFence make_fence(VkDevice device) {
    const VkFenceCreateInfo info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, 0};
    VkFence fence;
    check(vkCreateFence(device, &info, nullptr, &fence), "creating a fence");
    return {device, fence};
}

OwnedCommandPool make_command_pool(VkDevice device, uint32_t family) {
    const VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, family};
    VkCommandPool pool;
    check(vkCreateCommandPool(device, &info, nullptr, &pool), "creating a command pool");
    return {device, pool};
}

VkCommandBuffer allocate_commands(VkDevice device, VkCommandPool pool) {
    const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                           VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer commands;
    check(vkAllocateCommandBuffers(device, &info, &commands), "allocating a command buffer");
    return commands;
}

void begin_commands(VkCommandBuffer commands, VkCommandBufferUsageFlags usage) {
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, usage, nullptr};
    check(vkBeginCommandBuffer(commands, &begin), "beginning a command buffer");
}

void end_commands(VkCommandBuffer commands) { check(vkEndCommandBuffer(commands), "ending a command buffer"); }

static VkAccessFlags accesses_of(VkPipelineStageFlags stages) {
    VkAccessFlags out = 0;
    if (stages & kernel_stage) out |= VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
    if (stages & copy_stage) out |= VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    if (stages & host_stage) out |= VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT;
    return out;
}

// A full barrier names all accesses of all stages of work. Only device profiles ask for it (Capabilities::narrow_barriers):
// results that change with it point to a narrow barrier that is wrong, here or in the driver.
void barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to, BarrierForm form) {
    VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, accesses_of(from), accesses_of(to)};
    if (form == BarrierForm::full) {
        memory.srcAccessMask = memory.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
        from |= work_stages;
        if (!(to & host_stage)) to |= work_stages;
    }
    vkCmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

} // namespace tq
