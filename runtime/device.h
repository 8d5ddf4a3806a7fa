// One Vulkan device: its memory, its pipelines and its one compute queue. Not thread-safe.
#pragma once
#include "base/error.h"
#include "runtime/buffer.h"
#include "runtime/capabilities.h"
#include "runtime/profile.h"
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// Thrown if the Vulkan loader can load no driver. `reason` is its first error, such as the name of a library that a driver needs;
// empty if it has none because no driver is installed.
struct NoDriver : Error {
    NoDriver(const std::string& text, std::string reason) : Error(text), reason(std::move(reason)) {}
    std::string reason;
};
extern const char* const unloadable_driver_advice; // what to do if there is a reason

// Returns every device, usable or not, in the loader's order, clamped by the device profile of this name
// (runtime/device_profile.h); "": that of $TQ_DEVICE_PROFILE, if any. Throws NoDriver, and Error when there is no device, with
// installation advice; Error with a list of the profiles when there is none of that name.
std::vector<Capabilities> list_devices(std::string_view profile = {});

// Returns the index of the device in `devices`, those of list_devices(), that Device(selector) opens. Throws as that does.
size_t find_device(const std::vector<Capabilities>& devices, std::string_view selector);

// While it is held, listing and opening devices takes the instance that it made, instead of making another one each time. Throws
// as list_devices() does.
std::shared_ptr<const void> hold_vulkan();

// Returns the Vulkan loader's version, encoded like Capabilities::api_version; 0 if there is no loader.
uint32_t loader_version();

class Device {
  public:
    // selector: "": the best usable device (discrete, integrated, virtual, cpu; then the most memory); digits: the index in
    // list_devices(); otherwise a part of the device's name in any case. `profile` as in list_devices(): this class keeps to
    // the clamped limits. Throws Error with a list of the devices when none matches, or the match is unusable.
    explicit Device(std::string_view selector = {}, std::string_view profile = {});
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const Capabilities& capabilities() const;

    // Allocates a buffer of `bytes` > 0, not zeroed; `label` names it in errors and debuggers. Throws Error with the numbers
    // when it is larger than capabilities().allocation_bytes, OutOfMemory when it does not fit into memory. Once half of the
    // allocations that the device allows exist, Placement::own is treated as shared.
    Buffer allocate(std::string label, uint64_t bytes, Memory memory = Memory::device, Placement placement = Placement::shared);
    uint64_t allocated_bytes() const; // device memory allocated for all existing buffers
    uint64_t available_bytes() const; // device memory that allocate() can still take, now

    // Returns an estimate of the most memory that stays unused between and after shared buffers, if all buffers take `bytes`.
    static uint64_t slack_bytes(uint64_t bytes);

    // The limit of allocated_bytes(); 0: the device's own. Buffers that exist already are kept.
    uint64_t memory_limit_bytes = 0;

    // While set, recordings are timed kernel by kernel (and slower: nothing overlaps). Set it before making a Recorder.
    bool profile = false;
    // Returns the times since the last call. Empty if the device has no timestamps (capabilities().timestamp_ns == 0).
    std::vector<ProfileRow> take_profile();
    const BuildCount& kernels_built() const; // since the device was opened

    struct Impl;
    Impl& impl() const { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
