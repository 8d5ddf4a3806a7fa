#include "model/gpu/cache.h"
#include "base/error.h"
#include "runtime/recorder.h"
#include <cmath>
#include <cstring>

namespace tq::gpu {
namespace {

uint64_t padded(uint64_t words) { return (words + 3) / 4 * 4; }

uint64_t code_part(KvType type, uint32_t head_dim, uint64_t vectors) { return padded(vectors * code_words(type, head_dim)); }
uint64_t scale_part(KvType type, uint64_t vectors) { return is_turboquant(type) ? padded((vectors + 1) / 2) : 0; }

uint64_t slice_words(KvOptions types, uint32_t head_dim, uint32_t heads, uint32_t capacity) {
    const uint64_t vectors = uint64_t(heads) * capacity;
    return code_part(types.k, head_dim, vectors) + scale_part(types.k, vectors) + code_part(types.v, head_dim, vectors) +
           scale_part(types.v, vectors);
}

bool is_finite(KvType type, const uint32_t* codes, uint16_t scale, uint32_t head_dim) {
    if (is_turboquant(type)) return scale != nonfinite_scale;
    std::vector<float> values(head_dim);
    decode_levels(type, values, {codes, code_words(type, head_dim)});
    for (const float v : values)
        if (!std::isfinite(v)) return false;
    return true;
}

} // namespace

CacheLayout::CacheLayout(KvOptions types, uint32_t head_dim, uint32_t heads, uint32_t capacity) {
    const uint64_t vectors = uint64_t(heads) * capacity;
    k_codes = 0;
    k_scales = uint32_t(code_part(types.k, head_dim, vectors));
    v_codes = k_scales + uint32_t(scale_part(types.k, vectors));
    v_scales = v_codes + uint32_t(code_part(types.v, head_dim, vectors));
    words = v_scales + uint32_t(scale_part(types.v, vectors));
}

KvCache::KvCache(Device& device, const Config& config, KvOptions types, uint32_t capacity)
    : types(types), head_dim(config.head_dim), capacity(capacity) {
    const Capabilities& caps = device.capabilities();
    const uint64_t limit = std::min(caps.storage_range_bytes, caps.allocation_bytes),
                   one = slice_words(types, head_dim, 1, capacity) * 4;
    if (one > limit)
        fail("a KV cache of {} tokens needs {:.1f} MiB per head and layer in {}/{}, but {} binds at most {:.1f} MiB at once: "
             "choose a "
             "smaller context with -c or smaller cache types with -ctk and -ctv",
             capacity, double(one) / (1 << 20), name(types.k), name(types.v), caps.name, double(limit) / (1 << 20));
    uint32_t most = config.num_key_value_heads;
    while (slice_words(types, head_dim, most, capacity) * 4 > limit) most--;

    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++) {
        LayerCache& cache =
            layers.emplace_back(LayerCache{rotation_signs(layer, KvSide::key), rotation_signs(layer, KvSide::value), {}});
        for (uint32_t head = 0; head < config.num_key_value_heads; head += most) {
            const uint32_t heads = std::min(most, config.num_key_value_heads - head);
            const CacheLayout layout(types, head_dim, heads, capacity);
            cache.slices.push_back(
                {device.allocate(fmt::format("KV cache of layer {}", layer), uint64_t(layout.words) * 4), head, heads, layout});
        }
    }
}

std::optional<std::string> KvCache::find_nonfinite(Device& device, uint32_t length) const {
    for (size_t layer = 0; layer < layers.size(); layer++)
        for (const CacheSlice& slice : layers[layer].slices) {
            const Buffer copy = device.allocate("KV cache read back", slice.buffer.bytes(), Memory::readback);
            Recorder recorder(device);
            recorder.copy(copy, slice.buffer);
            recorder.finish().run();
            const auto* words = reinterpret_cast<const uint32_t*>(copy.host().data());
            const auto bad = [&](KvType type, uint32_t codes, uint32_t scales, uint32_t at) {
                uint16_t scale = 0;
                if (is_turboquant(type))
                    std::memcpy(&scale, reinterpret_cast<const std::byte*>(words + scales) + size_t(at) * 2, 2);
                return !is_finite(type, words + codes + size_t(at) * code_words(type, head_dim), scale, head_dim);
            };
            for (uint32_t position = 0; position < length; position++)
                for (uint32_t head = 0; head < slice.heads; head++) {
                    const uint32_t at = head * capacity + position;
                    const bool bad_key = bad(types.k, slice.layout.k_codes, slice.layout.k_scales, at);
                    if (bad_key || bad(types.v, slice.layout.v_codes, slice.layout.v_scales, at))
                        return fmt::format("the {} of layer {}, kv head {}, position {}", bad_key ? "key" : "value", layer,
                                           slice.first_head + head, position);
                }
        }
    return std::nullopt;
}

uint64_t cache_bytes(const Config& config, KvOptions types, uint32_t capacity) {
    return slice_words(types, config.head_dim, config.num_key_value_heads, capacity) * 4 * config.num_hidden_layers;
}

} // namespace tq::gpu
