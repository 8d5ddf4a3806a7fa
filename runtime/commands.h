// The parts of a recording. Private to runtime/.
#pragma once
#include "runtime/device_impl.h"
#include "runtime/recorder.h"

namespace tq {

constexpr uint32_t stamps_per_pool = 1024; // timestamps; even, since a kernel takes two

// A dispatch that is timed by two timestamps.
struct Stamp {
    const char* kernel;
    Work work;
};

// A recording owns all that its command buffers refer to but buffers and pipelines: sets, texel views, query pools. It may be run
// again as it is. Two segments may be in flight, each with a fence of its own: the n-th that is submitted has fence n % 2.
struct Commands::Impl {
    Device::Impl& device;
    OwnedCommandPool pool;
    std::vector<VkCommandBuffer> segments;
    std::vector<OwnedDescriptorPool> descriptors;
    std::vector<OwnedBufferView> texel_views;
    std::vector<OwnedQueryPool> queries; // stamp i is timestamps 2 i and 2 i + 1, counted through all pools
    std::vector<Stamp> stamps;
    OwnedFence fences[2];

    explicit Impl(Device::Impl& device)
        : device(device), pool(make_command_pool(device.handle, device.family)),
          fences{make_fence(device.handle), make_fence(device.handle)} {}
    void add_up_stamps(); // adds those of a complete run to the device's profile
};

} // namespace tq
