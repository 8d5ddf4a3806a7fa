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
    // device_of: the device of each half, and at the end of the head; numbers below `devices`. The last device is the CPU.
    // stream_rows: blocks of at least this many rows run the CPU's feed-forward networks on the devices of their attention, with
    // weights that are uploaded for each block; 0: none do.
    Split(std::vector<uint32_t> device_of, uint32_t devices, uint32_t stream_rows = 0)
        : device_of_(std::move(device_of)), devices_(devices), stream_rows_(stream_rows) {}

    uint32_t devices() const { return devices_; }
    uint32_t layers() const { return uint32_t(device_of_.size() / 2); }
    uint32_t device_of(uint32_t half) const { return device_of_[half]; }
    uint32_t device_of_head() const { return device_of_.back(); }
    HeldHalves held(uint32_t device) const;
    std::vector<Part> parts() const; // of the layers, in their order, as long as possible
    bool is_whole_on(uint32_t device) const;

    uint32_t stream_rows() const { return stream_rows_; }
    Split with_stream_rows(uint32_t rows) const { return Split(device_of_, devices_, rows); }
    // The layers whose feed-forward network's weights come to a device.
    std::vector<uint32_t> streamed(uint32_t device) const;
    // The parts of blocks of stream_rows() rows or more. A network whose weights are uploaded is the last half of its part.
    std::vector<Part> streamed_parts() const;

  private:
    bool streams(uint32_t half) const;

    std::vector<uint32_t> device_of_;
    uint32_t devices_, stream_rows_;
};

} // namespace tq
