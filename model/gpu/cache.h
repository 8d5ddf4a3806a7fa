// The KV cache on the device: per layer one buffer, or several with some of the kv heads each where one would exceed the limit
// of a binding. Each has the codes of the keys, their scales, the codes of the values, their scales (model/kv/turboquant.md).
// It grows layer by layer, into new buffers. Kernels get each layer's capacity as a parameter, so that recordings
// must then be made again.
#pragma once
#include "model/config.h"
#include "model/kv/options.h"
#include "model/kv/stored.h"
#include "model/kv/window.h"
#include "runtime/device.h"
#include <optional>
#include <string>
#include <vector>

namespace tq::gpu {

// Offsets in 32-bit words of the parts of a slice of `heads` kv heads, each [heads][capacity]; each is aligned to 16 bytes.
struct CacheLayout {
    uint32_t k_codes, k_scales, v_codes, v_scales, words;

    CacheLayout(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t capacity);
    uint32_t codes(KvSide side) const { return side == KvSide::key ? k_codes : v_codes; }
    uint32_t scales(KvSide side) const { return side == KvSide::key ? k_scales : v_scales; }
};

struct CacheSlice {
    Buffer buffer;
    uint32_t first_head, heads;
    CacheLayout layout;
};

// The storage of one side of a layer; `matrix` is that of a dense rotation.
struct CacheCodec : KvCodec {
    std::optional<Buffer> matrix;

    CacheCodec(Device& device, KvCodec codec);
    CacheCodec(KvCodec codec, std::optional<Buffer> matrix) : KvCodec(std::move(codec)), matrix(std::move(matrix)) {}
    // Returns the rotation; ROTATION_NONE for a type that is not rotated.
    uint32_t rotation_constant() const { return is_rotated(type) ? uint32_t(rotation.kind) : ROTATION_NONE; }
};

struct LayerCache {
    CacheCodec k, v;
    uint32_t capacity; // tokens
    std::vector<CacheSlice> slices;
    std::optional<uint32_t> ring = {}; // of the window, where the layer has one: the number of its first vector

    KvTypes types() const { return {k.type, v.type}; }
    const CacheCodec& side(KvSide side) const { return side == KvSide::key ? k : v; }
};

// The full-precision window: fp16 vectors in the codes' own space (model/kv/window.h): those of keys, then those of values,
// each [block, then the rings][head_dim]. The block [kv_heads][block_tokens] holds the tokens of a pass of several, until it is
// done; each layer's ring [kv_heads][ring_tokens()] has position p at p % ring_tokens(). `tokens` are attended to.
struct WindowVectors {
    Buffer buffer;
    uint32_t tokens, block_tokens;

    uint32_t ring_tokens() const { return kept_window_tokens(tokens); }
    uint64_t side_bytes() const { return buffer.bytes() / 2; }
};

struct KvCache {
    uint32_t head_dim, kv_heads;
    std::vector<LayerCache> layers;
    std::optional<WindowVectors> window = {};

    // Throws Error when a single head's part exceeds the device's limit of a binding, or memory runs out.
    KvCache(Device& device, const Config& config, const KvOptions& kv, uint32_t capacity);
    KvCache(uint32_t head_dim, uint32_t kv_heads, std::vector<LayerCache> layers)
        : head_dim(head_dim), kv_heads(kv_heads), layers(std::move(layers)) {}

    // Adds a window of `tokens` tokens, a ring, to every layer that stores codes, for passes of at most `block_tokens`. Throws
    // Error when that exceeds the device's limit of a binding, or memory runs out.
    void keep_window(Device& device, uint32_t tokens, uint32_t block_tokens);

    uint32_t capacity() const; // tokens that all layers have room for
    // Returns the maximum of additional memory while growing to `capacity`: each layer exists twice while it is copied.
    uint64_t growth_bytes(uint32_t capacity) const;
    // Makes room for `capacity` tokens, an even number, and keeps the first `length`. Throws Error when memory runs out or the
    // device is lost: layers that have grown by then stay so, the others are unchanged, and all keep their content.
    void grow(Device& device, uint32_t length, uint32_t capacity);

    // Makes positions length .. to - 1 repetitions of the first `length`, an even number; the capacity must suffice.
    void repeat(Device& device, uint32_t length, uint32_t to);

    // Reads back the content of one side of a layer for the first `length` tokens. Throws Error when the device is lost.
    StoredSide stored(Device& device, uint32_t layer, KvSide side, uint32_t length) const;
    // Writes every side, from `source`; `length` tokens must fit. Throws Error when the device is lost, and what `source`
    // throws.
    void restore(Device& device, uint32_t length, const StoredSource& source);

    // Returns "the key of layer 3, kv head 1, position 17": the first vector below `length` that is not finite. Reads all back.
    std::optional<std::string> find_nonfinite(Device& device, uint32_t length) const;
};

// Returns the number of bytes that KvCache allocates.
uint64_t cache_bytes(const Config& config, const KvOptions& kv, uint32_t capacity);

// Returns the number of bytes that its keep_window(kv.window, block_tokens) allocates.
uint64_t window_bytes(const Config& config, const KvOptions& kv, uint32_t block_tokens);

// Throws Error when a single head's part of a cache of this size exceeds the device's limit of a binding.
void require_bindable(const Capabilities& caps, const Config& config, const KvOptions& kv, uint32_t capacity);

} // namespace tq::gpu
