// The KV cache on the device: per layer one buffer, or several that hold some of the kv heads each where one would be longer than
// a binding may be. In it: all codes of the keys, their scales, the codes of the values, their scales (model/kv/turboquant.md).
#pragma once
#include "model/config.h"
#include "model/kv/turboquant.h"
#include "runtime/device.h"
#include <optional>
#include <string>
#include <vector>

namespace tq::gpu {

// Offsets in 32-bit words of the parts of a slice of `heads` kv heads, each [heads][capacity]; every part begins at 16 bytes.
struct CacheLayout {
    uint32_t k_codes, k_scales, v_codes, v_scales, words;

    CacheLayout(KvOptions types, uint32_t head_dim, uint32_t heads, uint32_t capacity);
};

struct CacheSlice {
    Buffer buffer;
    uint32_t first_head, heads;
    CacheLayout layout;
};

struct LayerCache {
    Signs k_signs, v_signs;
    std::vector<CacheSlice> slices;
};

struct KvCache {
    KvOptions types;
    uint32_t head_dim, capacity;
    std::vector<LayerCache> layers;

    // Throws Error when a single head's part is longer than the device can bind, or memory runs out.
    KvCache(Device& device, const Config& config, KvOptions types, uint32_t capacity);

    // "the key of layer 3, kv head 1, position 17", the first stored vector below `length` that is not finite. Reads it all back.
    std::optional<std::string> find_nonfinite(Device& device, uint32_t length) const;
};

// Bytes that KvCache would allocate.
uint64_t cache_bytes(const Config& config, KvOptions types, uint32_t capacity);

} // namespace tq::gpu
