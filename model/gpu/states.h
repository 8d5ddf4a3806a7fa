// The states of recurrent layers on the device (Recurrent of model/config.h), in fp32: passes advance them in place.
#pragma once
#include "model/config.h"
#include "model/halves.h"
#include "runtime/device.h"
#include <map>
#include <optional>
#include <span>
#include <string>

namespace tq::gpu {

class RecurrentStates {
  public:
    // Allocates the states of the recurrent layers whose first half is held, zeros for each slot. Throws Error where those of a
    // layer exceed the device's limit of a binding, or memory runs out.
    RecurrentStates(Device& device, const Config& config, uint32_t slots, const HeldHalves& held);

    // [slots][state]; null for a layer that is not recurrent, or not held
    const Buffer* of(uint32_t layer) const;

    // As those of CacheVectors: of all recurrent layers, of which those that are held are read and written. Throw Error when the
    // device is lost, or memory for a copy runs out.
    uint64_t bytes() const { return layers_.size() * layer_bytes_; }
    void read(Device& device, uint32_t slot, std::span<std::byte> bytes) const;
    void write(Device& device, uint32_t slot, std::span<const std::byte> bytes) const;
    void copy(Device& device, uint32_t from_slot, uint32_t to_slot) const;
    void clear(Device& device, uint32_t slot) const;
    // Returns "the state of layer 3": the first that is not finite.
    std::optional<std::string> find_nonfinite(Device& device, uint32_t slot) const;

  private:
    template <class Use> void each(uint32_t slot, const Use& use) const;

    uint64_t layer_bytes_;
    std::map<uint32_t, std::optional<Buffer>> layers_; // the recurrent ones; empty: not held
    std::optional<Buffer> zeros_;                      // a state where a sequence begins
};

// Returns the number of bytes that RecurrentStates allocates; 0 where no layer is recurrent.
uint64_t states_bytes(const Config& config, uint32_t slots, const HeldHalves& held);

} // namespace tq::gpu
