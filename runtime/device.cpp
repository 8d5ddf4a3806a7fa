// Setting up a device and its memory.
// Memory comes from three arenas, one for each kind of memory that buffers may want (Memory). A loss of the device is noted where
// work is submitted and where it is waited for, and is final: the model on it is made anew on a Device that is opened again.
#include "runtime/device.h"
#include "base/ensure.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "runtime/device_impl.h"
#include <algorithm>

namespace tq {
namespace {

OwnedBuffer make_buffer(VkDevice device, uint64_t bytes) {
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkBuffer buffer;
    check(vkCreateBuffer(device, &info, nullptr, &buffer), "creating a buffer");
    return {device, buffer};
}

VkMemoryRequirements requirements(VkDevice device, VkBuffer buffer) {
    VkMemoryRequirements need;
    vkGetBufferMemoryRequirements(device, buffer, &need);
    return need;
}

// All buffers have the same usage, so Vulkan guarantees that the memory types allowed for one of them are those of all.
void make_arenas(Device::Impl& device, const uint64_t& limit_bytes) {
    static constexpr uint64_t unlimited = 0;
    VkPhysicalDeviceMemoryProperties properties;
    vkGetPhysicalDeviceMemoryProperties(device.physical, &properties);
    const uint32_t allowed = requirements(device.handle, make_buffer(device.handle, 16)).memoryTypeBits;
    for (const Memory memory : {Memory::device, Memory::upload, Memory::readback})
        device.arenas.try_emplace(memory, device.physical, device.handle, choose_memory_type(properties, allowed, memory).value(),
                                  device.capabilities.allocation_bytes, memory == Memory::device ? limit_bytes : unlimited);
}

// Returns the longest that a device may take for one answer; UINT64_MAX: any time.
uint64_t timeout_of_environment() {
    constexpr uint64_t default_seconds = 600; // a software driver may take minutes for one submission
    const std::string text = environment_variable("TQ_GPU_TIMEOUT").value_or("");
    uint64_t seconds = default_seconds;
    if (!text.empty() && (!parse_number(text, seconds) || seconds > 1'000'000))
        fail("TQ_GPU_TIMEOUT is \"{}\"; it can be the seconds that a GPU may take for one piece of work, up to 1000000, or 0 for "
             "any time",
             printable(text));
    return seconds == 0 ? UINT64_MAX : seconds * 1'000'000'000;
}

} // namespace

Device::Impl::Impl(std::string_view selector, std::string_view profile)
    : OpenDevice(open_device(selector, profile, Use::run)), timeout_ns(timeout_of_environment()) {}

// A queue may be used by one thread at a time. The fence is reset first, so that one that an earlier exception has left signalled
// is never submitted.
void Device::Impl::submit(std::span<const VkCommandBuffer> commands, VkFence fence) {
    const std::lock_guard lock(submitting);
    VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
    info.commandBufferCount = uint32_t(commands.size());
    info.pCommandBuffers = commands.data();
    try {
        check(vkResetFences(handle, 1, &fence), "resetting a fence");
        check(vkQueueSubmit(queue, 1, &info, fence), "submitting work");
    } catch (const DeviceLost&) {
        lost = true;
        throw;
    }
}

// Memory that the device still uses must not be freed. A device that does not answer within the timeout (TQ_GPU_TIMEOUT) may
// answer later, and then write to its buffers. So nothing of it is freed from now on: its handle is abandoned, which makes all
// Owned* of it let go without a call, and the instance is kept for the rest of the process.
void Device::Impl::give_up() {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    static auto& kept = *new std::vector<std::shared_ptr<Instance>>;
    kept.push_back(instance);
    abandon(handle);
    lost = stuck = true;
}

void Device::Impl::wait(VkFence fence) {
    const VkResult result = stuck ? VK_TIMEOUT : vkWaitForFences(handle, 1, &fence, VK_TRUE, timeout_ns);
    if (result == VK_TIMEOUT && !stuck) give_up();
    if (result == VK_TIMEOUT)
        throw DeviceLost(
            fmt::format("{} gave no answer for {} s, and is taken for lost: update the driver or choose another device "
                        "with --device; TQ_GPU_TIMEOUT=SECONDS gives it another time, and 0 any",
                        capabilities.name, timeout_ns / 1'000'000'000));
    if (result == VK_ERROR_DEVICE_LOST) lost = true;
    check(result, "waiting for the GPU");
}

void Device::Impl::wait_to_end(VkFence fence) {
    if (!stuck && vkWaitForFences(handle, 1, &fence, VK_TRUE, timeout_ns) == VK_TIMEOUT) give_up();
}

uint32_t loader_version() { return volkInitialize() == VK_SUCCESS ? volkGetInstanceVersion() : 0; }

Device::Device(std::string_view selector, std::string_view profile) : impl_(std::make_unique<Impl>(selector, profile)) {
    Impl& device = *impl_;
    vkGetDeviceQueue(device.handle, device.family, 0, &device.queue);
    make_arenas(device, memory_limit_bytes);
    device.pipelines.emplace(device.handle, device.capabilities,
                             PipelineOptions{.named = device.instance->debug_utils(), .feedback = device.feedback});
}

Device::~Device() = default;

const Capabilities& Device::capabilities() const { return impl_->capabilities; }

// Drivers bound the number of allocations. From half of that number on, a buffer that would have one of its own goes into a block
// with others if there is room, even though its memory then goes back to the driver later.
Buffer Device::allocate(std::string label, uint64_t bytes, Memory memory, Placement placement) {
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
    VkMemoryRequirements need = requirements(device.handle, buffer);
    need.alignment = std::max<VkDeviceSize>(need.alignment, device.capabilities.storage_alignment); // a profile may raise it
    if (device.allocations() >= device.capabilities.allocation_count / 2) placement = Placement::shared;
    const Arena::Piece piece = arena.take(need, placement, label);
    auto made = std::make_unique<Buffer::Impl>(arena, piece, std::move(buffer), bytes);
    check(vkBindBufferMemory(device.handle, made->handle, piece.block->memory, piece.offset), "binding memory");
    return Buffer(std::move(made));
}

uint64_t Device::allocated_bytes() const { return impl_->arenas.at(Memory::device).allocated_bytes(); }

uint64_t Device::slack_bytes(uint64_t bytes) { return Arena::block_bytes(bytes) + bytes / 64; }

uint64_t Device::available_bytes() const { return impl_->arenas.at(Memory::device).available_bytes(); }

DeviceIdentity identity(const Device& device) { return device.impl().identity; }

bool is_lost(const Device& device) { return device.impl().lost; }

bool is_stuck(const Device& device) { return device.impl().stuck; }

const BuildCount& Device::kernels_built() const { return impl_->pipelines->count(); }

std::vector<ProfileRow> Device::take_profile() {
    std::vector<ProfileRow> rows;
    for (auto& [kernel, row] : impl_->profile) rows.push_back(std::move(row));
    impl_->profile.clear();
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
    return rows;
}

} // namespace tq
