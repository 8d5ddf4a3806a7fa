// The states of recurrent layers on the device (RecurrentSlot), in fp32: passes advance them in place. And the hidden states that
// a head for multi-token prediction goes on from.
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
    // Allocates the states of the recurrent layers whose first half is held, zeros for each slot, with room for `pending` pending
    // tokens. Throws Error if a layer's states exceed the device's limit of a binding, or memory runs out.
    RecurrentStates(Device& device, const Config& config, uint32_t slots, uint32_t pending, const HeldHalves& held);

    // [slots][RecurrentSlot::floats]; null for a layer that is not recurrent, or not held
    const Buffer* of(uint32_t layer) const;
    // [slots][hidden_ring()][hidden_size], a token at its position modulo the ring; null if no head for multi-token prediction is
    // loaded
    const Buffer* hidden() const { return hidden_ ? &*hidden_ : nullptr; }
    uint32_t pending() const { return pending_; }

    // Like those of CacheVectors. `bytes` covers all recurrent layers; only held layers are read or written. They throw Error if
    // the device is lost, or memory for a copy runs out.
    uint64_t bytes() const { return layers_.size() * layer_bytes_ + hidden_bytes_; }
    void read(Device& device, uint32_t slot, uint32_t tokens, std::span<std::byte> bytes) const;
    void write(Device& device, uint32_t slot, uint32_t tokens, std::span<const std::byte> bytes) const;
    void copy(Device& device, uint32_t from_slot, uint32_t to_slot) const;
    void clear(Device& device, uint32_t slot) const;
    // Returns "the state of layer 3": the first that is not finite.
    std::optional<std::string> find_nonfinite(Device& device, uint32_t slot) const;

  private:
    template <class Use> void each(uint32_t slot, uint32_t tokens, const Use& use) const;
    // All that a slot has of a layer, and of hidden states.
    View slot_of(const Buffer& layer, uint32_t slot) const { return {layer, slot * slot_bytes_, slot_bytes_}; }
    View hidden_of(uint32_t slot) const;

    const uint32_t pending_;
    uint64_t layer_bytes_ = 0,
             slot_bytes_ = 0;   // bytes of a state; slot_bytes_: with its pending tokens
    uint64_t hidden_bytes_ = 0; // of one
    std::optional<Buffer> hidden_;
    std::map<uint32_t, std::optional<Buffer>> layers_; // the recurrent ones; empty: not held
    std::optional<Buffer> zeros_;                      // a state at the start of a sequence
};

// Returns the number of bytes that RecurrentStates allocates; 0 if there are none.
uint64_t states_bytes(const Config& config, uint32_t slots, uint32_t pending, const HeldHalves& held);

} // namespace tq::gpu
