// The cache of an attention row, on the host and in the device's layout. It is made hostile: pages that no row may read hold
// NaN, which would appear in any result; tables are scattered and out of order; odd slots share pages with the slot before; the
// window's ring holds NaN but for the tokens that may be read from it; the codes of the first tokens, which attention reads in
// fp16 (sinks), belong to other vectors, so that reading the codes instead shows.
#include "tools/check/conformance/attention_case.h"
#include "model/reference/kernels.h"

namespace tq::conformance {
namespace {

// The bytes of a host cache in the device's layout.
std::vector<uint32_t> slice_words(const host::LayerCache& cache, const gpu::CacheLayout& at, uint32_t first_head,
                                  uint32_t heads) {
    std::vector<uint32_t> words(at.words);
    for (const KvSide kind : {KvSide::key, KvSide::value}) {
        const host::CacheSide& side = cache.side(kind);
        const uint32_t per_vector = side.codec.words(), scales = side.codec.scales();
        for (uint32_t i = 0; i < side.blocks * heads * page_tokens; i++) {
            const uint32_t page = i / page_tokens / heads, head = first_head + i / page_tokens % heads;
            const host::Place place{page, i % page_tokens};
            std::ranges::copy(side.codes(place, head), words.begin() + std::ptrdiff_t(at.codes(kind) + i * per_vector));
            for (uint32_t n = 0; n < scales; n++) {
                const uint32_t half = i * scales + n;
                words[at.scales(kind) + half / 2] |= uint32_t(side.scales(place, head)[n]) << (16 * (half % 2));
            }
        }
        for (uint32_t i = 0; i < side.blocks * heads * FIRST_TOKENS; i++)
            std::ranges::copy(side.sink({i / FIRST_TOKENS / heads, i % FIRST_TOKENS}, first_head + i / FIRST_TOKENS % heads),
                              words.begin() + std::ptrdiff_t(at.sinks(kind) + i * side.sink_words));
    }
    return words;
}

// Writes the device's windows as they are before the pass: the vectors of its rows in the block, or in the slots' rings if rows
// are separate; NaN everywhere else.
void put_window(Rig& rig, const AttentionCase& shape, const host::LayerCache& host, const gpu::PassRows& pass,
                gpu::DeviceStorage& cache) {
    const uint32_t words = code_words(KvType::f16, shape.head_dim), block = pass.count() + 3;
    cache.keep_window(rig.device, host.sequences.shape().slots, shape.kv.window, block);
    gpu::WindowVectors& window = *cache.window;
    std::vector<uint32_t> content(window.buffer.bytes() / 4, 0xfe00fe00);
    const auto put = [&](uint32_t slot, uint32_t position, uint32_t head, uint32_t vector) {
        for (const KvSide side : {KvSide::key, KvSide::value})
            std::ranges::copy(host.window->side(side).codes(host.window_place({slot, position}), head),
                              content.begin() + std::ptrdiff_t(uint32_t(side) * window.side_bytes() / 4 + vector * words));
    };
    for (uint32_t t = 0; t < pass.count(); t++) {
        const gpu::Row& row = pass.rows[t];
        const bool in_block = !shape.separate && pass.count() > 1;
        for (uint32_t head = 0; head < shape.kv_heads; head++) {
            const uint32_t ring = *cache.layers[0].ring + (row.slot * shape.kv_heads + head) * window.ring_tokens();
            const uint32_t start = row.position - row.before, end = in_block ? start : row.position + 1;
            for (uint32_t p = host.sequences.window(row.slot).first(row.position); p < end; p++)
                put(row.slot, p, head, ring + p % window.ring_tokens());
            if (in_block) put(row.slot, row.position, head, head * block + t);
        }
    }
    window.buffer = rig.upload(std::as_bytes(std::span(content)));
}

// Fills pages with NaN, which would appear in every result that they are read for.
void poison_pages(const host::LayerCache& layer) {
    for (const host::CacheSide* side : {&layer.k, &layer.v}) {
        const size_t vectors = size_t(side->blocks) * side->heads * side->block_tokens;
        std::fill_n(side->words_.get(), vectors * side->codec.words(), 0xffffffffu);
        std::fill_n(side->scales_.get(), vectors * side->codec.scales(), uint16_t(0x7e00));
        std::fill_n(side->sinks_.get(), size_t(side->blocks) * side->heads * FIRST_TOKENS * side->sink_words, 0xfe00fe00u);
    }
}

// Gives `slot` the pages with the first n tokens of slot `from`, which may be itself, without its window.
void take_pages(Cache& cache, uint32_t from, uint32_t slot, uint32_t n) {
    const auto table = cache.table(from).first(pages_of(n));
    const std::vector<uint32_t> pages(table.begin(), table.end());
    cache.adopt(slot, pages, n, std::make_shared<SavedSlot>(SavedSlot{n}));
}

// Gives a slot pages for `length` tokens, not in order, and with others between them: the last slot had all.
void reserve_scattered(Cache& cache, uint32_t slot, uint32_t length) {
    const uint32_t other = cache.shape().slots - 1;
    for (uint32_t end = 0; end < length;) {
        end = std::min(length, (uint32_t(cache.table(slot).size()) + 1) * page_tokens);
        take_pages(cache, other, other, cache.position(other) - 2 * page_tokens);
        cache.reserve(slot, end - cache.position(slot));
    }
}

// Gives the first tokens of a slot, which are read in fp16, the codes of other vectors.
void replace_first_codes(Rig& rig, const host::LayerCache& layer, KvSide which, uint32_t slot, float deviation) {
    const host::CacheSide& side = layer.side(which);
    for (uint32_t position = 0; position < layer.first_tokens(); position++) {
        const host::Place place = layer.place({slot, position});
        for (uint32_t head = 0; head < side.heads; head++)
            encode(side.codec, side.codes(place, head), side.scales(place, head), rig.random.normals(side.head_dim(), deviation));
    }
}

std::vector<host::Row> rows_of(uint32_t slot, uint32_t begin, uint32_t end) {
    std::vector<host::Row> rows;
    for (uint32_t p = begin; p < end; p++) rows.push_back({slot, p});
    return rows;
}

} // namespace

gpu::DeviceStorage on_device(Rig& rig, const AttentionCase& shape, const host::LayerCache& cache, const gpu::PassRows& pass) {
    gpu::DeviceStorage out(shape.head_dim, shape.kv_heads, cache.k.blocks, {});
    gpu::LayerCache& layer =
        out.layers.emplace_back(gpu::LayerCache{{rig.device, cache.k.codec}, {rig.device, cache.v.codec}, {}});
    layer.is_mtp = shape.mtp;
    for (uint32_t head = 0; head < shape.kv_heads; head += shape.heads_per_slice) {
        const uint32_t heads = std::min(shape.heads_per_slice, shape.kv_heads - head);
        const gpu::CacheLayout layout(layer.types(), shape.head_dim, heads, out.pages);
        const std::vector<uint32_t> words = slice_words(cache, layout, head, heads);
        layer.slices.push_back({rig.upload(std::as_bytes(std::span(words))), head, heads, layout});
    }
    if (cache.window) put_window(rig, shape, cache, pass, out);
    return out;
}

gpu::PassRows fill(Rig& rig, const AttentionCase& shape, host::HostCache& cache) {
    const host::LayerCache& layer = cache.layers()[0];
    gpu::PassRows pass;
    poison_pages(layer);
    for (uint32_t slot = 0; slot < shape.slots; slot++) {
        const uint32_t length = shape.length_of(slot), tokens = std::min(shape.tokens, length);
        if (slot % 2 == 1) take_pages(cache, slot - 1, slot, std::min(cache.position(slot - 1), length) / 2);
        reserve_scattered(cache, slot, length);
        if (shape.window_begin != 0) {
            cache.advance(slot, shape.window_begin);
            take_pages(cache, slot, slot, shape.window_begin);
            cache.reserve(slot, length - shape.window_begin);
        }
        const uint32_t begin = slot % 2 == 1 ? cache.position(slot) : 0;
        const std::vector<host::Row> rows = rows_of(slot, begin, length);
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            std::vector<float> x = rig.random.normals(rows.size() * shape.kv_heads * shape.head_dim, shape.stored);
            for (size_t i = 0; i < x.size() && shape.growing && side == KvSide::value; i++)
                x[i] *= float(1 + i / (shape.kv_heads * shape.head_dim));
            ref::kv_append(rig.pool, layer, side, x, {}, {{}, rows}, 0);
            if (begin == 0) replace_first_codes(rig, layer, side, slot, shape.stored);
        }
        pass.add(slot, length - tokens, std::vector<uint32_t>(tokens), cache.window(slot).begin, shape.separate);
        cache.advance(slot, length - cache.position(slot));
    }
    return pass;
}

} // namespace tq::conformance
