// The KV cache in host memory: for each layer and side, the codes of each kv head, token by token, and the scales beside them.
#pragma once
#include "model/kv/stored.h"
#include "model/kv/window.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq::host {

// One side (keys or values) of one layer.
struct CacheSide {
    KvCodec codec;
    uint32_t heads, capacity;
    std::unique_ptr<uint32_t[]> words_;  // [heads][capacity][codec.words()]
    std::unique_ptr<uint16_t[]> scales_; // [heads][capacity][codec.scales()]

    CacheSide(KvCodec codec, uint32_t heads, uint32_t capacity);
    // Keeps the first `length` tokens. Throws std::bad_alloc, and changes nothing, when memory runs out.
    void grow(uint32_t length, uint32_t capacity);
    uint64_t bytes(uint32_t capacity) const; // of a side like this
    StoredSide stored(uint32_t length) const;
    void restore(StoredSide from); // must fit the capacity

    uint32_t head_dim() const { return codec.head_dim(); }
    std::span<uint32_t> codes(uint32_t head, uint32_t position) const {
        return {&words_[(size_t(head) * capacity + position) * codec.words()], codec.words()};
    }
    std::span<uint16_t> scales(uint32_t head, uint32_t position) const {
        return {&scales_[(size_t(head) * capacity + position) * codec.scales()], codec.scales()};
    }
};

// The full-precision window, in fp16 (model/kv/window.h): position p is at p % capacity; the capacity is the kept tokens and a
// block of tokens.
struct WindowVectors {
    CacheSide k, v; // of type f16
    WindowPositions positions;
};

struct LayerCache {
    CacheSide k, v;
    std::optional<WindowVectors> window = {};

    // Adds a window of `tokens` tokens, for passes of at most `block_tokens`, where the layer stores codes. Throws
    // std::bad_alloc.
    void keep_window(uint32_t tokens, uint32_t block_tokens);
};

// Returns the number of tokens that all sides have room for.
uint32_t capacity(const std::vector<LayerCache>& layers);
// Returns the maximum of additional memory while the cache grows: each side exists twice while it is copied.
uint64_t growth_bytes(const std::vector<LayerCache>& layers, uint32_t capacity);
// Grows one side after another: where memory runs out, those that have grown stay so, and all keep their content.
void grow(std::vector<LayerCache>& layers, uint32_t length, uint32_t capacity);

// Makes positions length .. to - 1 repetitions of the first `length`; the capacity must suffice.
void repeat(const std::vector<LayerCache>& layers, uint32_t length, uint32_t to);

// Returns "the key of layer 3, kv head 1, position 17": the first stored vector below `length` that is not finite.
std::optional<std::string> find_nonfinite(const std::vector<LayerCache>& layers, uint32_t length);

} // namespace tq::host
