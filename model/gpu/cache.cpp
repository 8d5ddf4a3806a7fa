#include "model/gpu/cache.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/sizes.h"
#include "runtime/recorder.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <cstring>
#include <iterator>

namespace tq::gpu {
namespace {

uint64_t code_part(KvType type, uint32_t head_dim, uint64_t vectors) { return round_up(vectors * code_words(type, head_dim), 4); }
uint64_t scale_part(KvType type, uint32_t head_dim, uint64_t vectors) {
    return round_up((vectors * scale_count(type, head_dim) + 1) / 2, 4);
}

uint64_t slice_words(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t capacity) {
    const uint64_t vectors = uint64_t(heads) * capacity;
    uint64_t words = 0;
    for (const KvType type : {types.k, types.v})
        words += code_part(type, head_dim, vectors) + scale_part(type, head_dim, vectors);
    return words;
}

Buffer upload(Device& device, std::span<const float> content) {
    Buffer buffer = device.allocate("rotation", content.size_bytes());
    Uploader uploader(device);
    std::memcpy(uploader.begin(buffer).data(), content.data(), content.size_bytes());
    uploader.end();
    uploader.finish();
    return buffer;
}

// Returns the maximum number of kv heads in a slice. Throws Error when not even one fits.
uint32_t heads_per_slice(const Capabilities& caps, KvTypes types, uint32_t head_dim, uint32_t kv_heads, uint32_t capacity) {
    const uint64_t limit = std::min(caps.storage_range_bytes, caps.allocation_bytes),
                   one = slice_words(types, head_dim, 1, capacity) * 4;
    if (one > limit)
        fail("a KV cache of {} tokens needs {:.1f} MiB per head and layer in {}/{}, but {} binds at most {:.1f} MiB at once: "
             "choose a smaller context with -c or smaller cache types with -ctk and -ctv",
             capacity, double(one) / (1 << 20), name(types.k), name(types.v), caps.name, double(limit) / (1 << 20));
    uint32_t most = kv_heads;
    while (slice_words(types, head_dim, most, capacity) * 4 > limit) most--;
    return most;
}

std::vector<CacheSlice> make_slices(Device& device, size_t layer, KvTypes types, uint32_t head_dim, uint32_t kv_heads,
                                    uint32_t capacity) {
    const uint32_t most = heads_per_slice(device.capabilities(), types, head_dim, kv_heads, capacity);
    std::vector<CacheSlice> slices;
    for (uint32_t head = 0; head < kv_heads; head += most) {
        const uint32_t heads = std::min(most, kv_heads - head);
        const CacheLayout layout(types, head_dim, heads, capacity);
        Buffer buffer = device.allocate(fmt::format("KV cache of layer {}", layer), uint64_t(layout.words) * 4, Memory::device,
                                        Placement::own);
        slices.push_back({std::move(buffer), head, heads, layout});
    }
    return slices;
}

// Returns the location of `length` tokens of one side of a kv head from `begin` on, an even number: codes, and scales if there
// are any, in whole words. The last word may contain the fp16 scale of another token, of the same head, since capacities are
// even.
std::vector<View> stored_parts(const LayerCache& layer, std::span<const CacheSlice> slices, uint32_t capacity, KvSide side,
                               uint32_t head, uint32_t length, uint32_t begin = 0) {
    const CacheSlice& slice = *std::ranges::find_if(slices, [&](const CacheSlice& s) { return head < s.first_head + s.heads; });
    const uint64_t first = uint64_t(head - slice.first_head) * capacity + begin;
    std::vector<View> parts;
    const auto add = [&](uint64_t begin_words, uint64_t halves) { // per vector
        if (halves > 0) parts.emplace_back(slice.buffer, begin_words * 4 + first * halves * 2, (length * halves + 1) / 2 * 4);
    };
    add(slice.layout.codes(side), layer.side(side).words() * 2);
    add(slice.layout.scales(side), layer.side(side).scales());
    return parts;
}

constexpr std::array both_sides{KvSide::key, KvSide::value};

void write(Uploader& uploader, const View& to, std::span<const std::byte> content) {
    for (uint64_t at = 0; at < to.bytes; at += Uploader::max_piece_bytes()) {
        const View piece(*to.buffer, to.offset + at, std::min<uint64_t>(Uploader::max_piece_bytes(), to.bytes - at));
        const std::span<std::byte> there = uploader.begin(piece);
        const std::span from = content.subspan(at, std::min<uint64_t>(there.size(), content.size() - at));
        std::ranges::fill(std::ranges::copy(from, there.begin()).out, there.end(), std::byte(0)); // half a word at most
        uploader.end();
    }
}

bool is_finite(const KvCodec& codec, KvSide side, const CacheLayout& layout, std::span<const uint32_t> words, size_t at) {
    const size_t count = codec.scales();
    std::vector<uint16_t> scales(count);
    for (size_t i = 0; i < count; i++) {
        const size_t half = at * count + i;
        scales[i] = uint16_t(words[layout.scales(side) + half / 2] >> (16 * (half % 2)));
    }
    return tq::is_finite(codec, words.subspan(layout.codes(side) + at * codec.words(), codec.words()), scales);
}

// Returns the size in bytes of `vectors` fp16 vectors, rounded up to the largest alignment of bindings that Vulkan allows.
uint64_t window_side_bytes(uint64_t vectors, uint32_t head_dim) { return (vectors * head_dim * 2 + 255) / 256 * 256; }

Buffer read_back(Device& device, const CacheSlice& slice) {
    Buffer copy = device.allocate("KV cache read back", slice.buffer.bytes(), Memory::readback);
    Recorder recorder(device);
    recorder.copy(copy, slice.buffer);
    recorder.finish().run();
    return copy;
}

} // namespace

CacheLayout::CacheLayout(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t capacity) {
    const uint64_t vectors = uint64_t(heads) * capacity;
    k_codes = 0;
    k_scales = uint32_t(code_part(types.k, head_dim, vectors));
    v_codes = k_scales + uint32_t(scale_part(types.k, head_dim, vectors));
    v_scales = v_codes + uint32_t(code_part(types.v, head_dim, vectors));
    words = v_scales + uint32_t(scale_part(types.v, head_dim, vectors));
}

CacheCodec::CacheCodec(Device& device, KvCodec codec) : KvCodec(std::move(codec)) {
    if (rotation.matrix) matrix = upload(device, *rotation.matrix);
}

KvCache::KvCache(Device& device, const Config& config, const KvOptions& kv, uint32_t capacity)
    : head_dim(config.head_dim), kv_heads(config.num_key_value_heads) {
    const uint32_t count = config.num_hidden_layers;
    for (uint32_t layer = 0; layer < count; layer++) {
        LayerCache& cache = layers.emplace_back(LayerCache{{device, kv.codec(layer, count, KvSide::key, head_dim)},
                                                           {device, kv.codec(layer, count, KvSide::value, head_dim)},
                                                           capacity,
                                                           {}});
        cache.slices = make_slices(device, layer, cache.types(), head_dim, kv_heads, capacity);
    }
}

void KvCache::keep_window(Device& device, uint32_t tokens, uint32_t block_tokens) {
    uint32_t vectors = kv_heads * block_tokens;
    for (LayerCache& layer : layers) {
        if (!layer.types().coded()) continue;
        layer.ring = vectors;
        vectors += kv_heads * kept_window_tokens(tokens);
    }
    const uint64_t bytes = 2 * window_side_bytes(vectors, head_dim);
    const Capabilities& caps = device.capabilities();
    if (bytes > std::min(caps.storage_range_bytes, caps.allocation_bytes))
        fail("a window of {} tokens takes {:.1f} MiB, and {} binds at most {:.1f} MiB at once: choose a smaller --kv-window",
             tokens, double(bytes) / (1 << 20), caps.name,
             double(std::min(caps.storage_range_bytes, caps.allocation_bytes)) / (1 << 20));
    window.emplace(WindowVectors{device.allocate("window", bytes, Memory::device, Placement::own), tokens, block_tokens});
}

uint32_t KvCache::capacity() const { return std::ranges::min_element(layers, {}, &LayerCache::capacity)->capacity; }

uint64_t KvCache::growth_bytes(uint32_t capacity) const {
    uint64_t more = 0, peak = 0;
    for (const LayerCache& layer : layers) {
        if (layer.capacity >= capacity) continue;
        const uint64_t grown = slice_words(layer.types(), head_dim, kv_heads, capacity) * 4;
        peak = std::max(peak, more + grown);
        more += grown - slice_words(layer.types(), head_dim, kv_heads, layer.capacity) * 4;
    }
    return peak;
}

void KvCache::grow(Device& device, uint32_t length, uint32_t capacity) {
    for (size_t i = 0; i < layers.size(); i++) {
        LayerCache& layer = layers[i];
        if (layer.capacity >= capacity) continue;
        ENSURE(capacity % 2 == 0 && layer.capacity % 2 == 0 && length <= layer.capacity, "{} of {} tokens, to {}", length,
               layer.capacity, capacity);
        std::vector<CacheSlice> grown = make_slices(device, i, layer.types(), head_dim, kv_heads, capacity);
        if (length > 0) {
            Recorder recorder(device);
            for (uint32_t head = 0; head < kv_heads; head++)
                for (const KvSide side : both_sides) {
                    const std::vector<View> from = stored_parts(layer, layer.slices, layer.capacity, side, head, length),
                                            to = stored_parts(layer, grown, capacity, side, head, length);
                    for (size_t part = 0; part < from.size(); part++) recorder.copy(to[part], from[part]);
                }
            recorder.finish().run();
        }
        layer.slices = std::move(grown);
        layer.capacity = capacity;
    }
}

void KvCache::repeat(Device& device, uint32_t length, uint32_t to) {
    ENSURE(length > 0 && length % 2 == 0 && to <= capacity(), "{} to {} of {}", length, to, capacity());
    for (const LayerCache& layer : layers) {
        Recorder recorder(device);
        for (uint32_t at = length; at < to;) { // doubling each time
            const uint32_t count = std::min(at, to - at);
            for (uint32_t head = 0; head < kv_heads; head++)
                for (const KvSide side : both_sides) {
                    const std::vector<View> from = stored_parts(layer, layer.slices, layer.capacity, side, head, count),
                                            there = stored_parts(layer, layer.slices, layer.capacity, side, head, count, at);
                    for (size_t part = 0; part < from.size(); part++) recorder.copy(there[part], from[part]);
                }
            at += count;
        }
        recorder.finish().run();
    }
}

StoredSide KvCache::stored(Device& device, uint32_t layer, KvSide side, uint32_t length) const {
    const LayerCache& cache = layers[layer];
    StoredSide out(cache.side(side), kv_heads, length);
    if (length == 0) return out;
    std::vector<View> parts; // one or two per head
    for (uint32_t head = 0; head < kv_heads; head++)
        std::ranges::copy(stored_parts(cache, cache.slices, cache.capacity, side, head, length), std::back_inserter(parts));
    std::vector<Buffer> copies;
    for (const View& part : parts) copies.push_back(device.allocate("KV cache read back", part.bytes, Memory::readback));
    Recorder recorder(device);
    for (size_t i = 0; i < parts.size(); i++) recorder.copy(copies[i], parts[i]);
    recorder.finish().run();
    const size_t per_head = parts.size() / kv_heads;
    const auto take = [&](size_t part, std::span<std::byte> to) {
        std::ranges::copy(copies[part].host().first(to.size()), to.begin());
    };
    for (uint32_t head = 0; head < kv_heads; head++) {
        take(head * per_head, std::as_writable_bytes(out.codes_of(head)));
        if (per_head > 1) take(head * per_head + 1, std::as_writable_bytes(out.scales_of(head)));
    }
    return out;
}

void KvCache::restore(Device& device, uint32_t length, const StoredSource& source) {
    Uploader uploader(device);
    for (uint32_t i = 0; i < layers.size(); i++)
        for (const KvSide side : both_sides) {
            StoredSide from = source(i, side);
            const KvCodec& codec = layers[i].side(side);
            ENSURE(from.codec.type == codec.type && from.codec.head_dim() == head_dim && from.heads == kv_heads &&
                       from.tokens == length && length <= layers[i].capacity,
                   "{} tokens of {} heads of {} for {} of {}", from.tokens, from.heads, name(from.codec.type), length,
                   name(codec.type));
            for (uint32_t head = 0; head < kv_heads && length > 0; head++) {
                const auto parts = stored_parts(layers[i], layers[i].slices, layers[i].capacity, side, head, length);
                write(uploader, parts[0], std::as_bytes(from.codes_of(head)));
                if (parts.size() > 1) write(uploader, parts[1], std::as_bytes(from.scales_of(head)));
            }
        }
    uploader.finish();
}

std::optional<std::string> KvCache::find_nonfinite(Device& device, uint32_t length) const {
    for (size_t layer = 0; layer < layers.size(); layer++)
        for (const CacheSlice& slice : layers[layer].slices) {
            const Buffer copy = read_back(device, slice);
            const std::span words(reinterpret_cast<const uint32_t*>(copy.host().data()), slice.layout.words);
            for (uint32_t position = 0; position < length; position++)
                for (uint32_t head = 0; head < slice.heads; head++)
                    for (const KvSide side : {KvSide::key, KvSide::value})
                        if (!is_finite(layers[layer].side(side), side, slice.layout, words,
                                       size_t(head) * layers[layer].capacity + position))
                            return fmt::format("the {} of layer {}, kv head {}, position {}",
                                               side == KvSide::key ? "key" : "value", layer, slice.first_head + head, position);
        }
    return std::nullopt;
}

uint64_t window_bytes(const Config& config, const KvOptions& kv, uint32_t block_tokens) {
    const uint32_t rings = kv.layers_with_window(config.num_hidden_layers);
    const uint64_t heads = config.num_key_value_heads,
                   vectors = heads * (block_tokens + uint64_t(rings) * kept_window_tokens(kv.window));
    return rings == 0 ? 0 : 2 * window_side_bytes(vectors, config.head_dim);
}

uint64_t cache_bytes(const Config& config, const KvOptions& kv, uint32_t capacity) {
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
        bytes += slice_words(kv.at(layer, config.num_hidden_layers), config.head_dim, config.num_key_value_heads, capacity) * 4;
    return bytes;
}

void require_bindable(const Capabilities& caps, const Config& config, const KvOptions& kv, uint32_t capacity) {
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
        heads_per_slice(caps, kv.at(layer, config.num_hidden_layers), config.head_dim, config.num_key_value_heads, capacity);
}

} // namespace tq::gpu
