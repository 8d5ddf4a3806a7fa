// The vectors of the cache in host memory, for the reference and the CPU engine. Cache (model/cache.h) keeps the books: which
// page of which slot has which tokens. This file has the bytes.
// A page's codes are stored head by head, so that attention reads the keys of one head in one run: [page][head][token][words].
// Beside them are the scales, in an array of their own, and the first tokens of each page in fp16.
// Pages that leave (to other slots, the prefix cache or a file) have the layout of PageLayout, which is the same on all devices.
// read_page() and write_page() translate, head by head. A layer that is not held here, or is recurrent, has no bytes there.
// Memory is not initialised: a system provides a page of it when it is first written, so a large context that is not used takes
// none.
#include "model/host/cache.h"
#include "base/ensure.h"
#include "base/statistics.h"
#include "model/kv/options.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

namespace tq::host {

std::vector<Row> make_rows(uint32_t slot, uint32_t position, uint32_t count, StateRange state) {
    std::vector<Row> rows(count);
    for (Row& row : rows) row = {slot, position++, state};
    return rows;
}

std::vector<Row> rows_of(const PassRows& rows) {
    std::vector<Row> out;
    for (const PassRow& row : rows.rows) out.push_back({row.slot, row.position, row.state});
    return out;
}

// A pass has rows of several slots, those of a slot together and in order. The state's range counts tokens of the slot and is
// clipped to the rows of this run.
std::vector<SlotRows> by_slot(std::span<const Row> rows) {
    std::vector<SlotRows> out;
    for (size_t t = 0; t < rows.size(); t++) {
        if (out.empty() || out.back().slot != rows[t].slot)
            out.push_back({rows[t].slot, t, t, rows[t].position, {std::min(rows[t].state.begin, rows[t].position), 0}});
        out.back().end = t + 1;
        out.back().state.end = std::min(rows[t].state.end, rows[t].position + 1);
    }
    return out;
}

CacheSide::CacheSide(KvCodec codec, uint32_t heads, uint32_t blocks, uint32_t block_tokens, uint32_t sink_words)
    : codec(std::move(codec)), heads(heads), blocks(blocks), block_tokens(block_tokens),
      words_(new uint32_t[size_t(blocks) * heads * block_tokens * this->codec.words()]),
      scales_(new uint16_t[size_t(blocks) * heads * block_tokens * this->codec.scales()]), sink_words(sink_words),
      sinks_(new uint32_t[size_t(blocks) * heads * FIRST_TOKENS * sink_words]) {}

// The first tokens' fp16 vectors go with their page, so they are copied only from the beginning of a page to the beginning of
// another.
void CacheSide::copy(Place from, Place to, uint32_t tokens) const {
    for (uint32_t head = 0; head < heads && tokens > 0; head++) {
        std::copy_n(codes(from, head).data(), size_t(tokens) * codec.words(), codes(to, head).data());
        std::copy_n(scales(from, head).data(), size_t(tokens) * codec.scales(), scales(to, head).data());
        for (uint32_t t = 0; from.token == 0 && to.token == 0 && t < std::min(tokens, FIRST_TOKENS); t++)
            std::ranges::copy(sink({from.block, t}, head), sink({to.block, t}, head).begin());
    }
}

LayerStates::LayerStates(const Recurrent& shape, uint32_t slots, uint32_t max)
    : shape(shape), slots(slots), values(slots * floats()), ring(pending_ring(max)),
      pending(slots * ring * shape.pending_floats()) {}

// A pass may have several rows of a slot. The state before a row is then that after the row above it; only a slot's first row of
// the pass needs the kept state.
void states_before(std::span<float> y, std::span<const float> x, LastStates& kept, std::span<const Row> rows) {
    const size_t cols = kept.cols;
    for (size_t t = 0; t < rows.size(); t++) {
        const std::span to = y.subspan(t * cols, cols);
        if (rows[t].position == 0)
            std::ranges::fill(to, 0.0f);
        else if (t > 0 && rows[t - 1].slot == rows[t].slot)
            std::ranges::copy(x.subspan((t - 1) * cols, cols), to.begin());
        else
            std::ranges::copy(kept.at({rows[t].slot, rows[t].position - 1}), to.begin());
    }
}

void keep_states(LastStates& kept, std::span<const float> x, std::span<const Row> rows) {
    for (size_t t = 0; t < rows.size(); t++) std::ranges::copy(x.subspan(t * kept.cols, kept.cols), kept.at(rows[t]).begin());
}

static std::optional<WindowVectors> make_window(const Cache::Shape& shape, const CacheSide& k, const CacheSide& v,
                                                uint32_t pass_tokens) {
    if (shape.window_tokens == 0 || !KvTypes{k.codec.type, v.codec.type}.coded()) return std::nullopt;
    const auto side = [&](const CacheSide& of) {
        return CacheSide({KvType::f16, of.codec.scale_rule, of.codec.rotation}, of.heads, shape.slots,
                         ring_tokens(shape.window_tokens, pass_tokens));
    };
    return WindowVectors{side(k), side(v)};
}

HostVectors::HostVectors(const Cache& sequences, uint32_t kv_heads, const std::vector<LayerCodecs>& layers, uint32_t pass_tokens,
                         const HeldHalves& held, SettleStates settle, uint32_t hidden_size)
    : sequences_(sequences), kv_heads_(kv_heads), settle_(settle) {
    const Cache::Shape& shape = sequences.shape();
    if (hidden_size != 0) last_states_ = std::make_unique<LastStates>(shape.slots, hidden_ring(shape.pending), hidden_size);
    for (const LayerCodecs& codecs : layers) {
        const bool here = held.attention(uint32_t(layers_.size())), has_pages = here && !codecs.recurrent;
        const uint32_t pages = has_pages ? sequences.shape().pages : 0;
        const uint32_t sink = sink_words({codecs.k.type, codecs.v.type}, codecs.k.head_dim());
        CacheSide k(codecs.k, kv_heads, pages, page_tokens, sink), v(codecs.v, kv_heads, pages, page_tokens, sink);
        auto window = has_pages ? make_window(sequences.shape(), k, v, pass_tokens) : std::nullopt;
        auto states =
            here && codecs.recurrent ? std::make_unique<LayerStates>(*codecs.recurrent, shape.slots, shape.pending) : nullptr;
        layers_.push_back({.sequences = sequences,
                           .k = std::move(k),
                           .v = std::move(v),
                           .window = std::move(window),
                           .recurrent = codecs.recurrent,
                           .states = std::move(states),
                           .is_mtp = codecs.is_mtp});
    }
}

void HostVectors::copy_page(uint32_t from, uint32_t to, uint32_t tokens) {
    for (const LayerCache& layer : layers_)
        if (layer.held())
            for (const CacheSide* side : {&layer.k, &layer.v}) side->copy({from, 0}, {to, 0}, tokens);
}

void HostVectors::copy_window(uint32_t from, uint32_t to) {
    for (const LayerCache& layer : layers_)
        if (layer.window)
            for (const CacheSide* side : {&layer.window->k, &layer.window->v}) side->copy({from, 0}, {to, 0}, side->block_tokens);
}

StoredSide HostVectors::stored(uint32_t slot, uint32_t layer, KvSide which) const {
    ENSURE(layer < layers_.size(), "layer {} of {}", layer, layers_.size());
    ENSURE(!layers_[layer].recurrent, "layer {} is recurrent", layer);
    const CacheSide& side = layers_[layer].side(which);
    StoredSide out(side.codec, side.heads, sequences_.position(slot));
    for (uint32_t head = 0; head < side.heads; head++)
        for (uint32_t at = 0; at < out.tokens; at += page_tokens) {
            const uint32_t tokens = std::min(page_tokens, out.tokens - at);
            const Place from = layers_[layer].place({slot, at});
            std::copy_n(side.codes(from, head).data(), tokens * side.codec.words(), out.codes_of(head, at).data());
            std::copy_n(side.scales(from, head).data(), tokens * side.codec.scales(), out.scales_of(head, at).data());
        }
    return out;
}

PageLayout HostVectors::page_layout() const {
    std::vector<PageLayout::Vector> vectors;
    for (const LayerCache& layer : layers_)
        for (const CacheSide* side : {&layer.k, &layer.v})
            vectors.push_back(layer.recurrent ? PageLayout::Vector{}
                                              : PageLayout::Vector{side->codec.words(), side->codec.scales(), side->sink_words});
    return {kv_heads_, std::move(vectors)};
}

// Copies the cache's bytes at `here` into the caller's bytes, or, if these are const, the bytes to `here`.
static void transfer(std::span<std::byte> bytes, void* here) {
    if (!bytes.empty()) std::memcpy(bytes.data(), here, bytes.size());
}
static void transfer(std::span<const std::byte> bytes, void* here) {
    if (!bytes.empty()) std::memcpy(here, bytes.data(), bytes.size());
}

template <class Byte> void HostVectors::transfer_page(uint32_t page, uint32_t tokens, std::span<Byte> bytes) const {
    const PageLayout layout = page_layout();
    ENSURE(tokens <= page_tokens && bytes.size() == layout.bytes(tokens), "{} bytes of {} tokens", bytes.size(), tokens);
    for (uint32_t layer = 0; layer < layers_.size(); layer++)
        for (const KvSide which : {KvSide::key, KvSide::value}) {
            const CacheSide& side = layers_[layer].side(which);
            for (uint32_t head = 0; head < side.heads && side.blocks > 0; head++) {
                transfer(layout.codes(bytes, tokens, layer, which, head), side.codes({page, 0}, head).data());
                transfer(layout.scales(bytes, tokens, layer, which, head), side.scales({page, 0}, head).data());
                transfer(layout.sink(bytes, tokens, layer, which, head), side.sink({page, 0}, head).data());
            }
        }
}

// Each vector of a slot's window at these positions.
template <class Byte>
void HostVectors::transfer_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<Byte> bytes) const {
    const PageLayout layout = window_layout(page_layout());
    ENSURE(bytes.size() == layout.bytes(tokens), "{} bytes of {} tokens", bytes.size(), tokens);
    for (uint32_t layer = 0; layer < layers_.size(); layer++)
        for (const KvSide which : {KvSide::key, KvSide::value}) {
            if (!layers_[layer].window) continue;
            const CacheSide& ring = layers_[layer].window->side(which);
            for (uint32_t head = 0; head < ring.heads; head++) {
                const std::span<Byte> vectors = layout.codes(bytes, tokens, layer, which, head);
                const size_t size = tokens == 0 ? 0 : vectors.size() / tokens;
                for (uint32_t i = 0; i < tokens; i++)
                    transfer(vectors.subspan(i * size, size), ring.codes({slot, (first + i) % ring.block_tokens}, head).data());
            }
        }
}

// The states of each layer that is held, and at the end the last hidden state.
template <class Byte> void HostVectors::transfer_state(uint32_t slot, uint32_t tokens, std::span<Byte> bytes) const {
    ENSURE(bytes.size() == state_bytes(), "{} bytes of states", bytes.size());
    for (const LayerCache& layer : layers_) {
        if (!layer.recurrent) continue;
        const uint64_t size = layer.recurrent->state_bytes();
        if (layer.states) transfer(bytes.first(size), layer.states->of(slot).data());
        bytes = bytes.subspan(size);
    }
    if (last_states_) transfer(bytes, last_states_->at({slot, tokens - 1}).data());
}

uint64_t HostVectors::state_bytes() const {
    uint64_t bytes = 0;
    for (const LayerCache& layer : layers_) bytes += layer.recurrent ? layer.recurrent->state_bytes() : 0;
    return bytes + (last_states_ ? 4ull * last_states_->cols : 0);
}

void HostVectors::read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const {
    transfer_page(page, tokens, bytes);
}
void HostVectors::write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) {
    transfer_page(page, tokens, bytes);
}
void HostVectors::read_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const {
    transfer_window(slot, first, tokens, bytes);
}
void HostVectors::write_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) {
    transfer_window(slot, first, tokens, bytes);
}
void HostVectors::read_state(uint32_t slot, uint32_t tokens, std::span<std::byte> bytes) const {
    transfer_state(slot, tokens, bytes);
}
void HostVectors::write_state(uint32_t slot, uint32_t tokens, std::span<const std::byte> bytes) {
    transfer_state(slot, tokens, bytes);
}

// Pending inputs are copied with the state: it does not have their tokens yet.
void HostVectors::copy_state(uint32_t from, uint32_t to) {
    for (const LayerCache& layer : layers_) {
        if (!layer.states) continue;
        std::ranges::copy(layer.states->of(from), layer.states->of(to).begin());
        std::ranges::copy(layer.states->pending_of(from), layer.states->pending_of(to).begin());
    }
    if (last_states_) std::ranges::copy(last_states_->of(from), last_states_->of(to).begin());
}

void HostVectors::settle_state(uint32_t slot, uint32_t settled, uint32_t tokens) {
    ENSURE(settle_ != nullptr, "{} of {} tokens", settled, tokens);
    for (const LayerCache& layer : layers_)
        if (layer.states) settle_(*layer.states, slot, settled, tokens);
}

void HostVectors::clear_state(uint32_t slot) {
    for (const LayerCache& layer : layers_)
        if (layer.states) std::ranges::fill(layer.states->of(slot), 0.0f);
}

// Fills the ring with repetitions of the vectors that it has.
static void repeat_window(const WindowVectors& window, uint32_t slot, uint32_t length) {
    for (const CacheSide* side : {&window.k, &window.v})
        for (uint32_t at = length; at < side->block_tokens; at++) side->copy({slot, at % length}, {slot, at}, 1);
}

// Fills a cache for benchmarks, instead of tokens that would have to be computed. Runs end where the page of the source, the page
// of the target, or the repeated part ends.
void HostVectors::repeat(uint32_t slot, uint32_t length, uint32_t to) {
    for (const LayerCache& layer : layers_) {
        if (!layer.held()) continue;
        for (uint32_t at = length, count; at < to; at += count) { // runs that end with a page, or with the repeated part
            const uint32_t from = at % length;
            count = std::min({page_tokens - at % page_tokens, page_tokens - from % page_tokens, length - from, to - at});
            for (const CacheSide* side : {&layer.k, &layer.v})
                side->copy(layer.place({slot, from}), layer.place({slot, at}), count);
        }
        if (layer.window) repeat_window(*layer.window, slot, length);
    }
}

static bool is_finite(const CacheSide& side, Place at, uint32_t head) {
    return tq::is_finite(side.codec, side.codes(at, head), side.scales(at, head));
}

std::string HostVectors::where(std::string what, uint32_t slot) const {
    return sequences_.shape().slots > 1 ? fmt::format("{} of slot {}", what, slot) : what;
}

// Asked only after a pass has given logits that are not finite, so it may take its time: it reads all that the slot has, layer by
// layer, and names the first place.
std::optional<std::string> HostVectors::find_nonfinite(uint32_t slot) const {
    for (size_t i = 0; i < layers_.size(); i++) {
        if (layers_[i].states && sequences_.position(slot) > 0 && !all_finite(std::as_const(*layers_[i].states).of(slot)))
            return where(fmt::format("the state of layer {}", i), slot);
        for (uint32_t at = 0; at < sequences_.position(slot) && layers_[i].held(); at++)
            for (uint32_t head = 0; head < layers_[i].k.heads; head++) {
                const Place place = layers_[i].place({slot, at});
                const bool bad_key = !host::is_finite(layers_[i].k, place, head);
                if (bad_key || !host::is_finite(layers_[i].v, place, head))
                    return where(
                        fmt::format("the {} of layer {}, kv head {}, position {}", bad_key ? "key" : "value", i, head, at), slot);
            }
    }
    return std::nullopt;
}

} // namespace tq::host
