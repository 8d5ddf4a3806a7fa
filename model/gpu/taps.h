// Copies intermediate results of a recorded pass to ForwardOptions::tap.
#pragma once
#include "model/forward.h"
#include "model/gpu/kernels.h"
#include <string>
#include <vector>

namespace tq::gpu {

// The taps of one recording. They must outlive its Commands.
class Taps {
  public:
    Taps() = default; // no taps
    Taps(Device& device, const Tap& tap) : device_(&device), tap_(&tap) {}

    // Records a copy of x [tokens][cols]. Does nothing if no tap is set.
    void add(Pass&, std::string name, const View& x, uint32_t cols);
    bool on() const { return tap_ != nullptr && *tap_; }
    void deliver(uint32_t tokens) const; // after a run of the recording on that many tokens

  private:
    struct Copy {
        std::string name;
        uint32_t cols;
        Buffer values;
    };
    Device* device_ = nullptr;
    const Tap* tap_ = nullptr;
    std::vector<Copy> copies_;
};

} // namespace tq::gpu
