// One Vulkan device: its memory, its pipelines and its one compute queue. Not for use by two threads at once.
#pragma once
#include "runtime/buffer.h"
#include "runtime/capabilities.h"
#include "runtime/profile.h"
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// Every device, usable or not, in the loader's order, as `profile` clamps it: the name of a device profile
// (runtime/device_profile.h), or "" for that of $TQ_DEVICE_PROFILE, if any. Throws Error that says what to install when there is
// no device, or lists the profiles when there is none of that name.
std::vector<Capabilities> list_devices(std::string_view profile = {});

// The Vulkan loader's version, encoded like Capabilities::api_version; 0 where there is no loader.
uint32_t loader_version();

class Device {
  public:
    // "": the best usable device (discrete, integrated, virtual, cpu; then the most memory). Digits: the index in list_devices().
    // Else a part of its name in any case. `profile` as in list_devices(): everything here keeps to what it leaves of the device.
    // Throws Error with a list of the devices when none matches, or the match is unusable.
    explicit Device(std::string_view selector = {}, std::string_view profile = {});
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const Capabilities& capabilities() const;

    // A buffer of `bytes` > 0, not zeroed; `label` names it in errors and debuggers. Throws Error with the numbers when it is
    // larger than capabilities().allocation_bytes, OutOfMemory when it does not fit into memory. Once there are half as many
    // allocations as the device allows, Placement::own is as good as shared.
    Buffer allocate(std::string label, uint64_t bytes, Memory memory = Memory::device, Placement placement = Placement::shared);
    uint64_t allocated_bytes() const; // of the device's memory, by all living buffers
    uint64_t available_bytes() const; // of the device's memory, that allocate() can still take, now

    // About the most that stays unused between and behind shared buffers, where all buffers take `bytes`.
    static uint64_t slack_bytes(uint64_t bytes);

    // Most that allocated_bytes() may come to; 0: whatever the device has. What is there already stays.
    uint64_t memory_limit_bytes = 0;

    // While set, what is recorded is timed kernel by kernel (and slower: nothing overlaps). Set it before making a Recorder.
    bool profile = false;
    // What was timed since the last call. Empty where the device has no timestamps (capabilities().timestamp_ns == 0).
    std::vector<ProfileRow> take_profile();
    const BuildCount& kernels_built() const; // since the device was opened

    struct Impl;
    Impl& impl() const { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
