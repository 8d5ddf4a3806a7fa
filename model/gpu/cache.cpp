// The cache's vectors on a device: one buffer for each layer, cut into slices of kv heads if a binding is too small for all.
// Within a slice: codes of keys, their scales, first tokens in fp16, then the same of values; each as [page][head][token]. Pages
// go to and from the host through one copy of the whole page, since few large transfers cost less than many.
// Three places hold vectors. Pages, by the slot's table: page_part() gives the offsets of one page within a slice. The window:
// one buffer for all layers, keys in its first half and values in the second, each with a block and then rings. States:
// states.cpp. A page's bytes have two orders. each_copied_part() walks the device's (layer, slice, side), each_copied_head()
// finds the same parts in the copy by head, and PageLayout has the order of files, without slices: so a page fits a device with
// other limits.
#include "model/gpu/cache.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/sizes.h"
#include "runtime/recorder.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <iterator>

namespace tq::gpu {
namespace {

uint64_t code_part(KvType type, uint32_t head_dim, uint64_t vectors) { return round_up(vectors * code_words(type, head_dim), 4); }
uint64_t scale_part(KvType type, uint32_t head_dim, uint64_t vectors) {
    return round_up((vectors * scale_count(type, head_dim) + 1) / 2, 4);
}

uint64_t sink_part(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t pages) {
    return round_up(uint64_t(heads) * pages * FIRST_TOKENS * sink_words(types, head_dim), 4);
}

uint64_t slice_words(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t pages) {
    const uint64_t vectors = uint64_t(heads) * pages * page_tokens;
    uint64_t words = 0;
    for (const KvType type : {types.k, types.v})
        words +=
            code_part(type, head_dim, vectors) + scale_part(type, head_dim, vectors) + sink_part(types, head_dim, heads, pages);
    return words;
}

// Returns the maximum number of kv heads in a slice. Throws Error when not even one fits.
uint32_t heads_per_slice(const Capabilities& caps, KvTypes types, uint32_t head_dim, uint32_t kv_heads, uint32_t pages) {
    const uint64_t limit = std::min(caps.storage_range_bytes, caps.allocation_bytes),
                   one = slice_words(types, head_dim, 1, pages) * 4;
    if (one > limit)
        fail("a KV cache of {} tokens needs {:.1f} MiB per head and layer in {}/{}, but {} binds at most {:.1f} MiB at once: "
             "choose a smaller context with -c or smaller cache types with -ctk and -ctv",
             uint64_t(pages) * page_tokens, double(one) / (1 << 20), name(types.k), name(types.v), caps.name,
             double(limit) / (1 << 20));
    uint32_t max = kv_heads;
    while (slice_words(types, head_dim, max, pages) * 4 > limit) max--;
    return max;
}

std::vector<CacheSlice> make_slices(Device& device, size_t layer, KvTypes types, uint32_t head_dim, uint32_t kv_heads,
                                    uint32_t pages) {
    const uint32_t max = heads_per_slice(device.capabilities(), types, head_dim, kv_heads, pages);
    std::vector<CacheSlice> slices;
    for (uint32_t head = 0; head < kv_heads; head += max) {
        const uint32_t heads = std::min(max, kv_heads - head);
        const CacheLayout layout(types, head_dim, heads, pages);
        Buffer buffer = device.allocate(fmt::format("KV cache of layer {}", layer), uint64_t(layout.words) * 4, Memory::device,
                                        Placement::own);
        slices.push_back({std::move(buffer), head, heads, layout});
    }
    return slices;
}

// The vectors of one side of a slice's page, [slice.heads][page_tokens]: codes, and scales if there are any; and
// [slice.heads][FIRST_TOKENS], the first tokens' in fp16, if they are kept.
struct PagePart {
    uint64_t codes, scales, sinks; // offsets in bytes
    uint64_t code_bytes, scale_bytes, sink_bytes;

    // Returns the offset and the bytes of each of these that there is.
    std::vector<std::pair<uint64_t, uint64_t>> all() const {
        std::vector<std::pair<uint64_t, uint64_t>> out{{codes, code_bytes}};
        if (scale_bytes > 0) out.emplace_back(scales, scale_bytes);
        if (sink_bytes > 0) out.emplace_back(sinks, sink_bytes);
        return out;
    }
};

PagePart page_part(const LayerCache& layer, const CacheSlice& slice, KvSide side, uint32_t page) {
    const uint64_t vectors = uint64_t(slice.heads) * page_tokens, code_bytes = vectors * layer.side(side).words() * 4,
                   scale_bytes = vectors * layer.side(side).scales() * 2,
                   sink_bytes = slice.heads * FIRST_TOKENS * layer.sink_words() * 4ull;
    return {.codes = slice.layout.codes(side) * 4ull + page * code_bytes,
            .scales = slice.layout.scales(side) * 4ull + page * scale_bytes,
            .sinks = slice.layout.sinks(side) * 4ull + page * sink_bytes,
            .code_bytes = code_bytes,
            .scale_bytes = scale_bytes,
            .sink_bytes = sink_bytes};
}

// Calls use(view) with the codes of `tokens` tokens of a kv head of the slice from position `begin` on, all in one page, and
// with their scales, if there are any. Both numbers are even, so that scales are whole words.
template <class Use> void each_part(const LayerCache& layer, const CacheSlice& slice, KvSide side, Table table, uint32_t head,
                                    uint32_t begin, uint32_t tokens, const Use& use) {
    const PagePart part = page_part(layer, slice, side, table[begin / page_tokens]);
    const uint64_t first = uint64_t(head) * page_tokens + begin % page_tokens, vectors = uint64_t(slice.heads) * page_tokens;
    use(View(slice.buffer, part.codes + part.code_bytes / vectors * first, part.code_bytes / vectors * tokens));
    if (part.scale_bytes > 0)
        use(View(slice.buffer, part.scales + part.scale_bytes / vectors * first, part.scale_bytes / vectors * tokens));
}

constexpr std::array both_sides{KvSide::key, KvSide::value};

// A copy of a page has for each layer, slice and side the codes [slice.heads][page_tokens], then the scales, then the first
// tokens' vectors. Calls use(part of the page, its part of the copy) for each of these, for all layers.
template <class Use> void each_copied_part(const DeviceStorage& cache, uint32_t page, const Buffer& copy, const Use& use) {
    uint64_t at = 0;
    for (const LayerCache& layer : cache.layers)
        for (const CacheSlice& slice : layer.slices)
            for (const KvSide side : both_sides) {
                for (const auto& [offset, bytes] : page_part(layer, slice, side, page).all()) {
                    use(View(slice.buffer, offset, bytes), View(copy, at, bytes));
                    at += bytes;
                }
            }
}

// Calls use(layer, side, head, offset of its codes in the copy, that of its scales, that of its first tokens' vectors).
template <class Use> void each_copied_head(const DeviceStorage& cache, const Use& use) {
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < cache.layers.size(); layer++)
        for (const CacheSlice& slice : cache.layers[layer].slices)
            for (const KvSide side : both_sides) {
                const PagePart part = page_part(cache.layers[layer], slice, side, 0);
                for (uint32_t head = 0; head < slice.heads; head++)
                    use(layer, side, slice.first_head + head, at + part.code_bytes / slice.heads * head,
                        at + part.code_bytes + part.scale_bytes / slice.heads * head,
                        at + part.code_bytes + part.scale_bytes + part.sink_bytes / slice.heads * head);
                at += part.code_bytes + part.scale_bytes + part.sink_bytes;
            }
}

// Returns the size in bytes of `vectors` fp16 vectors, rounded up to the largest alignment of bindings that Vulkan allows.
uint64_t window_side_bytes(uint64_t vectors, uint32_t head_dim) { return (vectors * head_dim * 2 + 255) / 256 * 256; }

} // namespace

CacheLayout::CacheLayout(KvTypes types, uint32_t head_dim, uint32_t heads, uint32_t pages) {
    const uint64_t vectors = uint64_t(heads) * pages * page_tokens;
    k_codes = 0;
    k_scales = uint32_t(code_part(types.k, head_dim, vectors));
    k_sinks = k_scales + uint32_t(scale_part(types.k, head_dim, vectors));
    v_codes = k_sinks + uint32_t(sink_part(types, head_dim, heads, pages));
    v_scales = v_codes + uint32_t(code_part(types.v, head_dim, vectors));
    v_sinks = v_scales + uint32_t(scale_part(types.v, head_dim, vectors));
    words = v_sinks + uint32_t(sink_part(types, head_dim, heads, pages));
}

CacheCodec::CacheCodec(Device& device, KvCodec codec) : KvCodec(std::move(codec)) {
    if (rotation.matrix) matrix = upload(device, "rotation", *rotation.matrix);
}

DeviceStorage::DeviceStorage(Device& device, const Config& config, const KvOptions& kv, uint32_t pages, const HeldHalves& held)
    : head_dim(config.head_dim), kv_heads(config.num_key_value_heads), pages(pages) {
    const uint32_t count = config.num_hidden_layers;
    for (uint32_t layer = 0; layer < config.cache_layers(); layer++) {
        LayerCache& cache = layers.emplace_back(LayerCache{{device, kv.codec(layer, count, KvSide::key, head_dim)},
                                                           {device, kv.codec(layer, count, KvSide::value, head_dim)},
                                                           {}});
        cache.is_recurrent = config.is_recurrent(layer);
        cache.is_mtp = layer == count;
        if (held.attention(layer) && !cache.is_recurrent)
            cache.slices = make_slices(device, layer, cache.types(), head_dim, kv_heads, pages);
    }
}

void DeviceStorage::keep_window(Device& device, uint32_t slots, uint32_t tokens, uint32_t block_tokens) {
    uint32_t vectors = kv_heads * block_tokens;
    for (LayerCache& layer : layers) {
        if (!layer.types().coded() || layer.slices.empty()) continue;
        layer.ring = vectors;
        vectors += slots * kv_heads * kept_window_tokens(tokens);
    }
    const uint64_t bytes = 2 * window_side_bytes(vectors, head_dim);
    const Capabilities& caps = device.capabilities();
    if (bytes > std::min(caps.storage_range_bytes, caps.allocation_bytes))
        fail("a window of {} tokens takes {:.1f} MiB, and {} binds at most {:.1f} MiB at once: choose a smaller --kv-window",
             tokens, double(bytes) / (1 << 20), caps.name,
             double(std::min(caps.storage_range_bytes, caps.allocation_bytes)) / (1 << 20));
    window.emplace(WindowVectors{device.allocate("window", bytes, Memory::device, Placement::own), tokens, block_tokens});
}

void DeviceStorage::keep_states(Device& device, const Config& config, uint32_t slots, uint32_t pending, const HeldHalves& held) {
    if (config.has_states()) states.emplace(device, config, slots, pending, held);
}

void DeviceStorage::copy_page(Device& device, uint32_t from, uint32_t to) const {
    Recorder recorder(device);
    for (const LayerCache& layer : layers)
        for (const CacheSlice& slice : layer.slices)
            for (const KvSide side : both_sides) {
                const auto there = page_part(layer, slice, side, to).all(), here = page_part(layer, slice, side, from).all();
                for (size_t i = 0; i < here.size(); i++)
                    recorder.copy(View(slice.buffer, there[i].first, there[i].second),
                                  View(slice.buffer, here[i].first, here[i].second));
            }
    recorder.finish().run();
}

// Copies the rings of a slot to `copy`, or back: one after the other, of each layer that has one and each side.
static void move_rings(Recorder& recorder, const DeviceStorage& cache, uint32_t slot, const Buffer& copy, bool back) {
    const WindowVectors& window = *cache.window;
    const uint64_t vector = cache.head_dim * 2, ring = uint64_t(cache.kv_heads) * window.ring_tokens() * vector;
    uint64_t at = 0;
    for (const LayerCache& layer : cache.layers)
        for (const uint64_t side : {uint64_t(0), window.side_bytes()}) {
            if (!layer.ring) continue;
            const View here(window.buffer, side + *layer.ring * vector + slot * ring, ring), there(copy, at, ring);
            back ? recorder.copy(here, there) : recorder.copy(there, here);
            at += ring;
        }
}

// Calls use(vector in `bytes`, offset of the vector in a copy of the rings) for each vector of these positions.
template <class Byte, class Use> static void each_window_vector(const DeviceStorage& cache, uint32_t first, uint32_t tokens,
                                                                std::span<Byte> bytes, const Use& use) {
    const PageLayout layout = window_layout(cache.page_layout());
    const uint32_t ring_tokens = cache.window->ring_tokens();
    ENSURE(bytes.size() == layout.bytes(tokens) && tokens <= ring_tokens, "{} bytes of {} tokens", bytes.size(), tokens);
    const uint64_t vector = cache.head_dim * 2;
    uint64_t ring = 0;
    for (uint32_t layer = 0; layer < cache.layers.size(); layer++)
        for (const KvSide side : both_sides) {
            if (!cache.layers[layer].ring) continue;
            for (uint32_t head = 0; head < cache.kv_heads; head++) {
                const std::span<Byte> vectors = layout.codes(bytes, tokens, layer, side, head);
                for (uint32_t i = 0; i < tokens; i++)
                    use(vectors.subspan(i * vector, vector),
                        (ring + uint64_t(head) * ring_tokens + (first + i) % ring_tokens) * vector);
            }
            ring += uint64_t(cache.kv_heads) * ring_tokens;
        }
}

static uint64_t bytes_of_rings(const DeviceStorage& cache) {
    const auto rings =
        uint64_t(std::ranges::count_if(cache.layers, [](const LayerCache& layer) { return layer.ring.has_value(); }));
    return 2 * rings * cache.kv_heads * cache.window->ring_tokens() * cache.head_dim * 2;
}

void DeviceStorage::read_window(Device& device, uint32_t slot, uint32_t first, uint32_t tokens,
                                std::span<std::byte> bytes) const {
    if (!window || bytes.empty()) return;
    const Buffer copy = device.allocate("window read back", bytes_of_rings(*this), Memory::readback);
    Recorder recorder(device);
    move_rings(recorder, *this, slot, copy, false);
    recorder.finish().run();
    each_window_vector(*this, first, tokens, bytes, [&](std::span<std::byte> to, uint64_t from) {
        std::copy_n(copy.host().data() + from, to.size(), to.data());
    });
}

// Other positions of the ring get zeros: no query reads them (WindowPositions::begin).
void DeviceStorage::write_window(Device& device, uint32_t slot, uint32_t first, uint32_t tokens,
                                 std::span<const std::byte> bytes) const {
    if (!window || bytes.empty()) return;
    const Buffer copy = device.allocate("window to write", bytes_of_rings(*this), Memory::upload);
    std::ranges::fill(copy.host(), std::byte(0));
    each_window_vector(*this, first, tokens, bytes, [&](std::span<const std::byte> from, uint64_t to) {
        std::ranges::copy(from, copy.host().begin() + ptrdiff_t(to));
    });
    Recorder recorder(device);
    move_rings(recorder, *this, slot, copy, true);
    recorder.finish().run();
}

void DeviceStorage::copy_window(Device& device, uint32_t from_slot, uint32_t to_slot) const {
    if (!window) return;
    const uint64_t vector = head_dim * 2, ring = uint64_t(kv_heads) * window->ring_tokens() * vector;
    Recorder recorder(device);
    for (const LayerCache& layer : layers)
        for (const uint64_t side : {uint64_t(0), window->side_bytes()}) {
            if (!layer.ring) continue;
            const uint64_t rings = side + *layer.ring * vector;
            recorder.copy(View(window->buffer, rings + to_slot * ring, ring),
                          View(window->buffer, rings + from_slot * ring, ring));
        }
    recorder.finish().run();
}

void DeviceStorage::repeat(Device& device, Table table, uint32_t length, uint32_t to) const {
    ENSURE(length > 0 && length % 2 == 0 && to <= table.size() * page_tokens, "{} to {}", length, to);
    to += to % 2; // scales are copied in whole words
    for (const LayerCache& layer : layers) {
        Recorder recorder(device);
        for (uint32_t at = length; at < to; at *= 2)                                      // doubling each time
            for (uint32_t from = 0, count; from < std::min(at, to - at); from += count) { // within a page on both sides
                const uint32_t there = at + from;
                count =
                    std::min({std::min(at, to - at) - from, page_tokens - there % page_tokens, page_tokens - from % page_tokens});
                for (const CacheSlice& slice : layer.slices)
                    for (uint32_t head = 0; head < slice.heads; head++)
                        for (const KvSide side : both_sides) {
                            std::vector<View> parts;
                            const auto add = [&](const View& view) { parts.push_back(view); };
                            each_part(layer, slice, side, table, head, there, count, add);
                            each_part(layer, slice, side, table, head, from, count, add);
                            for (size_t i = 0; i < parts.size() / 2; i++) recorder.copy(parts[i], parts[i + parts.size() / 2]);
                        }
            }
        recorder.finish().run();
    }
}

StoredSide DeviceStorage::stored(Device& device, Table table, uint32_t layer, KvSide side, uint32_t length) const {
    const LayerCache& cache = layers[layer];
    StoredSide out(cache.side(side), kv_heads, length);
    if (length == 0) return out;
    const size_t words = out.codec.words(), scales = out.codec.scales();
    for (const CacheSlice& slice : cache.slices) {
        const uint32_t used = pages_of(length);
        const PagePart size = page_part(cache, slice, side, 0);
        const Buffer copy = device.allocate("KV cache read back", used * (size.code_bytes + size.scale_bytes), Memory::readback);
        Recorder recorder(device);
        for (uint32_t i = 0; i < used; i++) { // all codes, then all scales
            const PagePart part = page_part(cache, slice, side, table[i]);
            recorder.copy(View(copy, i * size.code_bytes, size.code_bytes), View(slice.buffer, part.codes, part.code_bytes));
            if (scales == 0) continue;
            recorder.copy(View(copy, used * size.code_bytes + i * size.scale_bytes, size.scale_bytes),
                          View(slice.buffer, part.scales, part.scale_bytes));
        }
        recorder.finish().run();
        const auto* codes = reinterpret_cast<const uint32_t*>(copy.host().data());
        const auto* fp16 = reinterpret_cast<const uint16_t*>(copy.host().data() + used * size.code_bytes);
        for (uint32_t head = 0; head < slice.heads; head++)
            for (uint32_t begin = 0; begin < length; begin += page_tokens) {
                const size_t at = (size_t(begin / page_tokens) * slice.heads + head) * page_tokens,
                             count = std::min(page_tokens, length - begin);
                std::copy_n(codes + at * words, count * words, out.codes_of(slice.first_head + head).data() + begin * words);
                std::copy_n(fp16 + at * scales, count * scales, out.scales_of(slice.first_head + head).data() + begin * scales);
            }
    }
    return out;
}

PageLayout DeviceStorage::page_layout() const {
    std::vector<PageLayout::Vector> vectors;
    for (const LayerCache& layer : layers)
        for (const KvSide side : both_sides)
            vectors.push_back(layer.is_recurrent
                                  ? PageLayout::Vector{}
                                  : PageLayout::Vector{layer.side(side).words(), layer.side(side).scales(), layer.sink_words()});
    return {kv_heads, std::move(vectors)};
}

void DeviceStorage::read_page(Device& device, uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const {
    const PageLayout layout = page_layout();
    ENSURE(page < pages && tokens <= page_tokens && bytes.size() == layout.bytes(tokens), "{} bytes of {} tokens of page {}",
           bytes.size(), tokens, page);
    const Buffer copy = device.allocate("page read back", layout.bytes(page_tokens), Memory::readback);
    Recorder recorder(device);
    each_copied_part(*this, page, copy, [&](const View& there, const View& here) { recorder.copy(here, there); });
    recorder.finish().run();
    each_copied_head(*this, [&](uint32_t layer, KvSide side, uint32_t head, uint64_t codes, uint64_t scales, uint64_t sink) {
        for (const auto& [from, to] : {std::pair(codes, layout.codes(bytes, tokens, layer, side, head)),
                                       {scales, layout.scales(bytes, tokens, layer, side, head)},
                                       {sink, layout.sink(bytes, tokens, layer, side, head)}})
            std::copy_n(copy.host().data() + from, to.size(), to.data());
    });
}

void DeviceStorage::write_page(Device& device, uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) const {
    const PageLayout layout = page_layout();
    ENSURE(page < pages && tokens <= page_tokens && bytes.size() == layout.bytes(tokens), "{} bytes of {} tokens of page {}",
           bytes.size(), tokens, page);
    const Buffer copy = device.allocate("page to write", layout.bytes(page_tokens), Memory::upload);
    if (tokens < page_tokens) std::ranges::fill(copy.host(), std::byte(0));
    each_copied_head(*this, [&](uint32_t layer, KvSide side, uint32_t head, uint64_t codes, uint64_t scales, uint64_t sink) {
        std::ranges::copy(layout.codes(bytes, tokens, layer, side, head), copy.host().begin() + ptrdiff_t(codes));
        std::ranges::copy(layout.scales(bytes, tokens, layer, side, head), copy.host().begin() + ptrdiff_t(scales));
        std::ranges::copy(layout.sink(bytes, tokens, layer, side, head), copy.host().begin() + ptrdiff_t(sink));
    });
    Recorder recorder(device);
    each_copied_part(*this, page, copy, [&](const View& there, const View& here) { recorder.copy(there, here); });
    recorder.finish().run();
}

std::optional<std::string> DeviceStorage::find_nonfinite(Device& device, Table table, uint32_t length) const {
    for (uint32_t layer = 0; layer < layers.size(); layer++) {
        if (layers[layer].slices.empty()) continue;
        StoredSide keys = stored(device, table, layer, KvSide::key, length),
                   values = stored(device, table, layer, KvSide::value, length);
        for (uint32_t position = 0; position < length; position++)
            for (uint32_t head = 0; head < kv_heads; head++)
                for (StoredSide* side : {&keys, &values})
                    if (!is_finite(side->codec, side->codes_of(head, position), side->scales_of(head, position)))
                        return fmt::format("the {} of layer {}, kv head {}, position {}", side == &keys ? "key" : "value", layer,
                                           head, position);
    }
    return std::nullopt;
}

std::optional<std::string> DeviceVectors::find_nonfinite(uint32_t slot) const {
    auto where = vectors_.find_nonfinite(device_, sequences_.table(slot), sequences_.position(slot));
    if (!where && vectors_.states && sequences_.position(slot) > 0) where = vectors_.states->find_nonfinite(device_, slot);
    if (where && sequences_.shape().slots > 1) *where += fmt::format(" of slot {}", slot);
    return where;
}

uint64_t window_bytes(const Config& config, const ForwardOptions& options) {
    const KvOptions& kv = options.kv;
    uint64_t rings = 0;
    for (uint32_t layer = 0; layer < config.cache_layers(); layer++)
        rings += options.held.attention(layer) && !config.is_recurrent(layer) && kv.window != 0 &&
                 kv.at(layer, config.num_hidden_layers).coded();
    const uint64_t heads = config.num_key_value_heads,
                   vectors = heads * (options.batch_size + rings * options.slots * kept_window_tokens(kv.window));
    return rings == 0 ? 0 : 2 * window_side_bytes(vectors, config.head_dim);
}

uint64_t cache_bytes(const Config& config, const KvOptions& kv, uint32_t pages, const HeldHalves& held) {
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < config.cache_layers(); layer++)
        if (held.attention(layer) && !config.is_recurrent(layer))
            bytes += slice_words(kv.at(layer, config.num_hidden_layers), config.head_dim, config.num_key_value_heads, pages) * 4;
    return bytes;
}

void require_bindable(const Capabilities& caps, const Config& config, const KvOptions& kv, uint32_t pages) {
    for (uint32_t layer = 0; layer < config.cache_layers(); layer++)
        if (!config.is_recurrent(layer))
            heads_per_slice(caps, kv.at(layer, config.num_hidden_layers), config.head_dim, config.num_key_value_heads, pages);
}

} // namespace tq::gpu
