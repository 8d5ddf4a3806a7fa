// A layer of a KV cache on the device, filled with poison, and its twin on the host as encode() fills it.
#pragma once
#include "model/kv/codec.h"
#include "model/kv/window.h"
#include "model/rope.h"
#include "tools/check/conformance/rig.h"
#include <array>
#include <bit>

namespace tq::conformance {

inline constexpr uint32_t kv_heads = 3, layer = 1; // of the twins
inline constexpr float eps = 1e-6f;

inline Config twin_config(uint32_t head_dim, uint32_t rotary_dim) {
    Config config{.vocab_size = 1,
                  .hidden_size = 64,
                  .intermediate_size = 64,
                  .num_hidden_layers = layer + 1,
                  .num_attention_heads = kv_heads,
                  .num_key_value_heads = kv_heads,
                  .head_dim = head_dim,
                  .max_position_embeddings = 1 << 16,
                  .rope_theta = 1e4f,
                  .rms_norm_eps = eps};
    config.rotary_dim = rotary_dim;
    return config;
}

// check() compares all words of the slices, also words of poison. So it finds not only a wrong code, but a vector in a page or
// slice that is not its own, and a write beyond it.
// One layer of a cache in two slices, with heads 0, 1 and head 2, as on devices whose bindings are short, filled with poison; and
// its twin as encode() fills it.
struct TwinCache {
    Rig& rig;
    const uint32_t rotary_dim; // Config::rotary_dim
    gpu::DeviceStorage cache;
    const std::vector<std::vector<uint32_t>> tables; // of two slots
    std::vector<float> rope;
    std::vector<std::vector<uint32_t>> expected; // slices

    TwinCache(Rig& rig, uint32_t head_dim, const KvOptions& kv, uint32_t capacity, uint32_t rotary_dim = 0)
        : rig(rig), rotary_dim(rotary_dim), cache(rig.device, twin_config(head_dim, rotary_dim), kv, pages_for(capacity)),
          tables(two_tables(capacity)), rope(rope_table(twin_config(head_dim, rotary_dim), capacity)) {
        cache.layers[0].slices.clear(); // nothing is stored there
        auto& slices = cache.layers[layer].slices;
        slices.clear();
        for (const auto& [first, heads] : {std::pair(0u, 2u), std::pair(2u, 1u)}) {
            const gpu::CacheLayout layout({kv.k, kv.v}, head_dim, heads, cache.pages);
            expected.emplace_back(layout.words, poison);
            slices.push_back({rig.upload(std::as_bytes(std::span(expected.back()))), first, heads, layout});
        }
    }

    uint32_t rotary() const { return rotary_dim == 0 ? cache.head_dim : rotary_dim; }
    const KvCodec& codec(KvSide side) const { return cache.layers[layer].side(side); }

    // Slot 0 has scattered_pages(), slot 1 the pages between them.
    static std::vector<std::vector<uint32_t>> two_tables(uint32_t capacity) {
        std::vector<uint32_t> first = scattered_pages(capacity), second = first;
        for (uint32_t& page : second) page--;
        return {first, second};
    }

    Buffer context_of(uint32_t position, uint32_t tokens) {
        gpu::PassRows rows;
        rows.add(0, position, std::vector<uint32_t>(tokens), 0, false);
        return rig.context(rows, tables, rope, rotary());
    }

    // Values are divided by conditions.factors.
    void append(const gpu::Tuning& tuning, KvSide side, std::span<const float> x, std::span<const float> w, uint32_t position,
                const HeadConditions& conditions = {}, std::optional<float> norm_eps = eps) {
        const uint32_t tokens = uint32_t(x.size() / kv_heads / cache.head_dim);
        const Buffer x_buffer = rig.upload(x),
                     w_buffer = rig.upload(gpu::head_norm_floats(w.empty() ? x.first(cache.head_dim) : w,
                                                                 w.empty() ? HeadConditions() : conditions)),
                     context = context_of(position, tokens);
        const gpu::HeadNorm norm{w_buffer, conditions.empty() ? 0 : kv_heads};
        const Buffer v_scales = rig.upload(
            conditions.empty() ? std::vector(1, 0.0f) : gpu::value_scale_floats(codec(KvSide::value), conditions.factors));
        rig.run(tuning, context, tokens + 2, cache.head_dim, [&](gpu::Pass& pass) {
            pass.rotary_dim = rotary_dim;
            if (side == KvSide::key)
                gpu::k_append(pass, cache, layer, x_buffer, norm, kv_heads, norm_eps);
            else
                gpu::v_append(pass, cache, layer, x_buffer, kv_heads, conditions.empty() ? nullptr : &v_scales);
        });
    }

    // The index in its slice of the vector of (token, head) number `i`, counted from `position` on.
    uint32_t vector_number(uint32_t i, uint32_t position, uint32_t slot = 0) const {
        const uint32_t at = position + i / kv_heads, heads = i % kv_heads < 2 ? 2 : 1;
        return (tables[slot][at / page_tokens] * heads + i % kv_heads % 2) * page_tokens + at % page_tokens;
    }

    // Stores x in the twin: unmodified vectors.
    void expect(KvSide side, std::span<const float> x, uint32_t position, uint32_t slot = 0) {
        const uint32_t d = cache.head_dim;
        const KvCodec& with = codec(side);
        std::vector<uint16_t> scales(with.scales());
        for (uint32_t i = 0; i < x.size() / d; i++) {
            const uint32_t slice_number = i % kv_heads / 2, at = vector_number(i, position, slot);
            const gpu::CacheLayout& layout = cache.layers[layer].slices[slice_number].layout;
            std::vector<uint32_t>& slice = expected[slice_number];
            const auto codes = std::span(slice).subspan(layout.codes(side) + size_t(at) * with.words(), with.words());
            encode(with, codes, scales, x.subspan(size_t(i) * d, d));
            const uint32_t sink_words = cache.layers[layer].sink_words();
            const uint32_t token = at % page_tokens, sink = (at / page_tokens * FIRST_TOKENS + token) * sink_words;
            if (sink_words != 0 && token < FIRST_TOKENS)
                encode_window(with, std::span(slice).subspan(layout.sinks(side) + sink, sink_words), x.subspan(size_t(i) * d, d));
            for (uint32_t n = 0; n < scales.size(); n++) {
                const uint32_t half = at * with.scales() + n;
                uint32_t& pair = slice[layout.scales(side) + half / 2];
                pair = half % 2 == 0 ? (pair & 0xffff0000) | scales[n] : (pair & 0xffff) | uint32_t(scales[n]) << 16;
            }
        }
    }

    Outcome check() {
        Outcome outcome;
        for (size_t s = 0; s < expected.size(); s++) {
            const gpu::CacheSlice& slice = cache.layers[layer].slices[s];
            const size_t sinks = size_t(cache.pages) * slice.heads * FIRST_TOKENS * cache.layers[layer].sink_words();
            const std::array halves{WordRange{slice.layout.sinks(KvSide::key), sinks},
                                    WordRange{slice.layout.sinks(KvSide::value), sinks}};
            const std::span none = std::span(halves).first(0);
            outcome = worse(outcome, compare_words(rig.read(slice.buffer), expected[s], sinks == 0 ? none : std::span(halves)));
        }
        return outcome;
    }

    // The vectors that decode() returns for the twin.
    std::vector<float> decoded(KvSide side, uint32_t position, uint32_t tokens) {
        const uint32_t d = cache.head_dim;
        const KvCodec& with = codec(side);
        std::vector<float> out(size_t(tokens) * kv_heads * d);
        std::vector<uint16_t> scales(with.scales());
        for (uint32_t i = 0; i < tokens * kv_heads; i++) {
            const uint32_t at = vector_number(i, position);
            const gpu::CacheLayout& layout = cache.layers[layer].slices[i % kv_heads / 2].layout;
            const std::vector<uint32_t>& slice = expected[i % kv_heads / 2];
            for (uint32_t n = 0; n < scales.size(); n++) {
                const uint32_t half = at * with.scales() + n;
                scales[n] = uint16_t(slice[layout.scales(side) + half / 2] >> (16 * (half % 2)));
            }
            decode(with, std::span(out).subspan(size_t(i) * d, d),
                   std::span(slice).subspan(layout.codes(side) + size_t(at) * with.words(), with.words()), scales);
        }
        return out;
    }

    // The stored key of (token, head) in an fp32 cache.
    std::vector<float> stored_keys(uint32_t position, uint32_t tokens) {
        const uint32_t d = cache.head_dim;
        std::vector<float> out;
        const std::array words{rig.read(cache.layers[layer].slices[0].buffer), rig.read(cache.layers[layer].slices[1].buffer)};
        for (uint32_t i = 0; i < tokens * kv_heads; i++) {
            const uint32_t slice = i % kv_heads / 2;
            const uint32_t codes = cache.layers[layer].slices[slice].layout.k_codes + vector_number(i, position) * d;
            for (uint32_t c = 0; c < d; c++) out.push_back(std::bit_cast<float>(words[slice][codes + c]));
        }
        return out;
    }
};

// The layer's window with its cache, and its twin as encode_window() fills it.
struct TwinWindow {
    static constexpr uint32_t tokens = 5, block_tokens = 45;
    TwinCache& twin;
    std::vector<uint32_t> expected;

    explicit TwinWindow(TwinCache& twin) : twin(twin) {
        twin.cache.keep_window(twin.rig.device, 1, tokens, block_tokens);
        expected.assign(twin.cache.window->buffer.bytes() / 4, poison);
        twin.cache.window->buffer = twin.rig.upload(std::as_bytes(std::span(expected)));
    }

    // x: the vectors of a pass at `position`, [tokens][kv_heads][head_dim]: stored in the block if they are several, as many
    // as fit in the ring, and all in the cache.
    void expect(KvSide side, std::span<const float> x, uint32_t position) {
        twin.expect(side, x, position);
        const uint32_t d = twin.cache.head_dim, words = d / 2, count = uint32_t(x.size() / d / kv_heads),
                       ring_tokens = twin.cache.window->ring_tokens();
        const auto half = std::span(expected).subspan(side == KvSide::key ? 0 : expected.size() / 2);
        for (uint32_t i = 0; i < count * kv_heads; i++) {
            const uint32_t head = i % kv_heads, t = i / kv_heads;
            const auto put = [&](uint32_t vector) {
                encode_window(twin.codec(side), half.subspan(size_t(vector) * words, words), x.subspan(size_t(i) * d, d));
            };
            if (count > 1) put(head * block_tokens + t);
            if (t + ring_tokens >= count) put(*twin.cache.layers[layer].ring + head * ring_tokens + (position + t) % ring_tokens);
        }
    }

    Outcome check() { return worse(compare_words(twin.rig.read(twin.cache.window->buffer), expected), twin.check()); }
};

} // namespace tq::conformance
