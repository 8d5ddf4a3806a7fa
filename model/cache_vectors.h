// The content of a cache: the vectors of tokens, page by page, and the full-precision windows and recurrent states of slots.
// model/cache.h is the bookkeeping above it. There is an implementation for each kind of memory: host (model/host/cache.h),
// device (model/gpu/cache.h), another process (model/stages/ranks/remote_stage.cpp), and several of these
// (model/stages/pipeline.cpp).
#pragma once
#include "model/kv/page_layout.h"
#include "model/kv/stored.h"
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tq {

// All functions throw Error if the device is lost. An implementation that holds only some layers does not touch the bytes of the
// others.
class CacheVectors {
  public:
    virtual ~CacheVectors() = default;

    // The bytes of the first `tokens` tokens of a page: page_layout().bytes(tokens).
    virtual PageLayout page_layout() const = 0;
    virtual void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const = 0;
    virtual void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) = 0;
    // Copies the first `tokens` tokens of a page, of all layers.
    virtual void copy_page(uint32_t from, uint32_t to, uint32_t tokens) = 0;
    // Copies the full-precision window of a slot, of all layers.
    virtual void copy_window(uint32_t from_slot, uint32_t to_slot) = 0;
    // The window's fp16 vectors of a slot's positions first .. first + tokens - 1, at most the kept ones:
    // window_layout(page_layout()).bytes(tokens), the same in every implementation.
    virtual void read_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const = 0;
    virtual void write_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) = 0;

    // The recurrent states of a slot, in models that have recurrent layers. state_bytes(): the states of all of them, layer by
    // layer, in fp32 as in Recurrent (model/config.h), the same in every implementation; then, if the model's head for
    // multi-token prediction is loaded, the last token's hidden state after the last norm. They are the states after the slot's
    // `tokens` tokens; none may be pending, because passes advance the states in place.
    virtual uint64_t state_bytes() const { return 0; }
    virtual void read_state(uint32_t /*slot*/, uint32_t /*tokens*/, std::span<std::byte>) const {}
    virtual void write_state(uint32_t /*slot*/, uint32_t /*tokens*/, std::span<const std::byte>) {}
    // Copies the states and pending updates of a slot.
    virtual void copy_state(uint32_t /*from_slot*/, uint32_t /*to_slot*/) {}
    // Applies pending updates: advances the states of a slot from `settled` to `tokens` tokens.
    virtual void settle_state(uint32_t /*slot*/, uint32_t /*settled*/, uint32_t /*tokens*/) {}
    // Sets a slot's states to zero, as at the start of a sequence.
    virtual void clear_state(uint32_t) {}

    // Returns one side of a layer for all tokens of a slot: the same bytes in every implementation.
    virtual StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) const = 0;
    // Makes positions length .. to - 1 of a slot, whose table has room for them, repetitions of its first `length`, an even
    // number.
    virtual void repeat(uint32_t slot, uint32_t length, uint32_t to) = 0;
    // Returns "the key of layer 3, kv head 1, position 17", with the slot if there are several: the first stored vector of a slot
    // that is not finite. Reads all of them. Throws OutOfMemory.
    virtual std::optional<std::string> find_nonfinite(uint32_t slot) const = 0;
};

} // namespace tq
