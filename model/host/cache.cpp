#include "model/host/cache.h"
#include "base/ensure.h"
#include "model/kv/options.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq::host {

CacheSide::CacheSide(KvCodec codec, uint32_t heads, uint32_t capacity)
    : codec(std::move(codec)), heads(heads), capacity(capacity),
      words_(new uint32_t[size_t(heads) * capacity * this->codec.words()]),
      scales_(new uint16_t[size_t(heads) * capacity * this->codec.scales()]) {}

void CacheSide::grow(uint32_t length, uint32_t to) {
    CacheSide grown(codec, heads, to);
    for (uint32_t head = 0; head < heads && length > 0; head++) {
        std::copy_n(codes(head, 0).data(), size_t(length) * codec.words(), grown.codes(head, 0).data());
        std::copy_n(scales(head, 0).data(), size_t(length) * codec.scales(), grown.scales(head, 0).data());
    }
    capacity = to;
    words_ = std::move(grown.words_);
    scales_ = std::move(grown.scales_);
}

uint64_t CacheSide::bytes(uint32_t capacity) const {
    return uint64_t(heads) * capacity * (codec.words() * sizeof words_[0] + codec.scales() * sizeof scales_[0]);
}

StoredSide CacheSide::stored(uint32_t length) const {
    StoredSide out(codec, heads, length);
    for (uint32_t head = 0; head < heads && length > 0; head++) {
        std::copy_n(codes(head, 0).data(), out.codes_of(head).size(), out.codes_of(head).data());
        std::copy_n(scales(head, 0).data(), out.scales_of(head).size(), out.scales_of(head).data());
    }
    return out;
}

void CacheSide::restore(StoredSide from) {
    ENSURE(from.codec.type == codec.type && from.codec.head_dim() == head_dim() && from.heads == heads && from.tokens <= capacity,
           "{} tokens of {} heads of {} for {}", from.tokens, from.heads, name(from.codec.type), name(codec.type));
    for (uint32_t head = 0; head < heads && from.tokens > 0; head++) {
        std::ranges::copy(from.codes_of(head), codes(head, 0).data());
        std::ranges::copy(from.scales_of(head), scales(head, 0).data());
    }
}

void LayerCache::keep_window(uint32_t tokens, uint32_t block_tokens) {
    if (tokens == 0 || !KvTypes{k.codec.type, v.codec.type}.coded()) return;
    const auto side = [&](const CacheSide& of) {
        return CacheSide({KvType::f16, of.codec.scale_rule, of.codec.rotation}, of.heads,
                         kept_window_tokens(tokens) + block_tokens);
    };
    window.emplace(WindowVectors{side(k), side(v), {tokens}});
}

uint32_t capacity(const std::vector<LayerCache>& layers) {
    uint32_t least = UINT32_MAX;
    for (const LayerCache& layer : layers) least = std::min({least, layer.k.capacity, layer.v.capacity});
    return least;
}

uint64_t growth_bytes(const std::vector<LayerCache>& layers, uint32_t capacity) {
    uint64_t more = 0, peak = 0;
    for (const LayerCache& layer : layers)
        for (const CacheSide* side : {&layer.k, &layer.v}) {
            if (side->capacity >= capacity) continue;
            peak = std::max(peak, more + side->bytes(capacity));
            more += side->bytes(capacity) - side->bytes(side->capacity);
        }
    return peak;
}

void grow(std::vector<LayerCache>& layers, uint32_t length, uint32_t capacity) {
    for (LayerCache& layer : layers)
        for (CacheSide* side : {&layer.k, &layer.v})
            if (side->capacity < capacity) side->grow(length, capacity);
}

void repeat(const std::vector<LayerCache>& layers, uint32_t length, uint32_t to) {
    for (const LayerCache& layer : layers)
        for (const CacheSide* side : {&layer.k, &layer.v})
            for (uint32_t head = 0; head < side->heads; head++)
                for (uint32_t at = length; at < to;) { // doubling each time
                    const uint32_t count = std::min(at, to - at);
                    std::copy_n(side->codes(head, 0).data(), size_t(count) * side->codec.words(), side->codes(head, at).data());
                    std::copy_n(side->scales(head, 0).data(), size_t(count) * side->codec.scales(),
                                side->scales(head, at).data());
                    at += count;
                }
}

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

} // namespace tq::host
