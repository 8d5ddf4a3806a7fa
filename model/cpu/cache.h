// The KV cache in host memory: for each layer and side, the codes of one kv head token after token, and the scales beside them.
#pragma once
#include "model/kv/turboquant.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq::cpu {

// One side (keys or values) of one layer.
struct CacheSide {
    KvType type;
    uint32_t heads, head_dim, capacity;
    Signs signs;
    std::unique_ptr<uint32_t[]> codes;  // [heads][capacity][code_words]
    std::unique_ptr<uint16_t[]> scales; // [heads][capacity]

    CacheSide(KvType type, KvSide side, uint32_t layer, uint32_t heads, uint32_t head_dim, uint32_t capacity);

    std::span<uint32_t> vector(uint32_t head, uint32_t position) const {
        const uint32_t words = code_words(type, head_dim);
        return {&codes[(size_t(head) * capacity + position) * words], words};
    }
    uint16_t& scale(uint32_t head, uint32_t position) const { return scales[size_t(head) * capacity + position]; }
};

struct LayerCache {
    CacheSide k, v;
};

// "the key of layer 3, kv head 1, position 17", the first stored vector below `length` that is not finite.
std::optional<std::string> find_nonfinite(const std::vector<LayerCache>& layers, uint32_t length);

} // namespace tq::cpu
