#include "model/cpu/cache.h"
#include <fmt/format.h>

namespace tq::cpu {

CacheSide::CacheSide(KvCodec codec, uint32_t heads, uint32_t capacity)
    : codec(std::move(codec)), heads(heads), capacity(capacity),
      words_(new uint32_t[size_t(heads) * capacity * this->codec.words()]),
      scales_(new uint16_t[size_t(heads) * capacity * this->codec.scales()]) {}

static bool is_finite(const CacheSide& side, uint32_t head, uint32_t position) {
    return tq::is_finite(side.codec, side.codes(head, position), side.scales(head, position));
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
