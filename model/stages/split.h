// The division of a model among devices.
#pragma once
#include "model/halves.h"
#include <cstdint>
#include <vector>

namespace tq {

// Consecutive halves on one device.
struct Part {
    HalfRange halves;
    uint32_t device;

    bool operator==(const Part&) const = default;
};

class Split {
  public:
    // device_of: of each half and of the head, which is the last; numbers below `devices`.
    Split(std::vector<uint32_t> device_of, uint32_t devices) : device_of_(std::move(device_of)), devices_(devices) {}

    uint32_t devices() const { return devices_; }
    uint32_t layers() const { return uint32_t(device_of_.size() / 2); }
    uint32_t device_of(uint32_t half) const { return device_of_[half]; }
    uint32_t device_of_head() const { return device_of_.back(); }
    HeldHalves held(uint32_t device) const;
    std::vector<Part> parts() const; // of the layers, in their order, as long as possible
    bool is_whole_on(uint32_t device) const;

  private:
    std::vector<uint32_t> device_of_;
    uint32_t devices_;
};

} // namespace tq
