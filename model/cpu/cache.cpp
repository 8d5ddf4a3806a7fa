#include "model/cpu/cache.h"
#include <cmath>
#include <fmt/format.h>

namespace tq::cpu {

CacheSide::CacheSide(KvType type, KvSide side, uint32_t layer, uint32_t heads, uint32_t head_dim, uint32_t capacity)
    : type(type), heads(heads), head_dim(head_dim), capacity(capacity), signs(rotation_signs(layer, side)),
      codes(new uint32_t[size_t(heads) * capacity * code_words(type, head_dim)]), scales(new uint16_t[size_t(heads) * capacity]) {
}

static bool is_finite(const CacheSide& side, uint32_t head, uint32_t position) {
    if (is_turboquant(side.type)) return side.scale(head, position) != nonfinite_scale;
    std::vector<float> values(side.head_dim);
    decode_levels(side.type, values, side.vector(head, position));
    for (const float v : values)
        if (!std::isfinite(v)) return false;
    return true;
}

std::optional<std::string> find_nonfinite(const std::vector<LayerCache>& layers, uint32_t length) {
    for (size_t layer = 0; layer < layers.size(); layer++)
        for (uint32_t position = 0; position < length; position++)
            for (uint32_t head = 0; head < layers[layer].k.heads; head++) {
                const bool bad_key = !is_finite(layers[layer].k, head, position);
                if (bad_key || !is_finite(layers[layer].v, head, position))
                    return fmt::format("the {} of layer {}, kv head {}, position {}", bad_key ? "key" : "value", layer, head,
                                       position);
            }
    return std::nullopt;
}

} // namespace tq::cpu
