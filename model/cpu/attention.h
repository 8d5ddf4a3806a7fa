// The partial results of attention on the CPU, and the scratch memory of a thread.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/host/network.h"
#include "model/kv/window.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <hwy/cache_control.h>
#include <limits>
#include <vector>

namespace tq::cpu {

using host::CacheSide, host::LayerCache, host::PageScores, host::Row;

inline constexpr uint32_t kv_tile = 64;    // positions that are decoded together; tiles begin at multiples of it
inline constexpr uint32_t query_tiles = 4; // tiles of queries that share them

static_assert(page_tokens % kv_tile == 0); // no tile crosses a page

// The vectors of consecutive tokens, at most kv_tile, of a kv head, within one block of a cache side.
struct StoredTile {
    host::Place first;
    uint32_t head, count;
};

// Keys and values of a sequence: vector i is token i % block_tokens of block blocks[i / block_tokens]. Vectors in pages are found
// by position, those of the window by their place in the ring.
struct StoredVectors {
    const CacheSide &k, &v;
    std::span<const uint32_t> blocks;

    StoredTile tile(uint32_t head, uint32_t first, uint32_t count) const {
        return {{blocks[first / k.block_tokens], first % k.block_tokens}, head, count};
    }
};
inline StoredVectors in_pages(const LayerCache& cache, const Row& row) {
    return {cache.k, cache.v, cache.sequences.table(row.slot)};
}
inline StoredVectors in_window(const LayerCache& cache, const Row& row) {
    return {cache.window->k, cache.window->v, std::span(&row.slot, 1)};
}

// A tile to be read soon, whose vectors are prefetched one by one while those of another are used: hardware prefetchers do not
// cross pages, and a tile is too short for them. Scales are prefetched repeatedly, since a prefetch of another page may be
// dropped.
class NextTile {
  public:
    NextTile(const host::CacheSide& side, const StoredTile& tile)
        : codes_(address(side.codes(tile.first, tile.head).data())), scales_(codes_), bytes_(side.codec.words() * 4),
          scale_bytes_(side.codec.scales() * 2) {
        if (scale_bytes_ > 0) scales_ = address(side.scales(tile.first, tile.head).data());
    }
    // There need not be as many vectors: prefetches may be of any address.
    HWY_INLINE void prefetch(size_t vector, size_t count) const {
        for (size_t at = 0; at < count * bytes_; at += 64) prefetch(codes_ + vector * bytes_ + at);
        prefetch(scales_ + vector * scale_bytes_);
    }

  private:
    static uintptr_t address(const void* of) { return reinterpret_cast<uintptr_t>(of); }
    static HWY_INLINE void prefetch(uintptr_t of) { hwy::Prefetch(reinterpret_cast<const std::byte*>(of)); }

    uintptr_t codes_, scales_;         // addresses, since a pointer past the last vector would be out of range
    const size_t bytes_, scale_bytes_; // of a vector
};

// The softmax over some positions for one query: sums = sum of exp(score - largest) * value, total without the value.
struct Partial {
    alignas(64) std::array<float, 256> sums;
    float largest, total;

    void scale(float by) {
        for (float& sum : sums) sum *= by;
    }
    void reset() {
        largest = -std::numeric_limits<float>::infinity();
        total = 0;
        sums.fill(0);
    }
};

// Returns the first position in the window of a row; without a window, the position after its own.
inline uint32_t first_in_window(const LayerCache& cache, Row row) {
    return cache.window ? cache.sequences.window(row.slot).first(row.position) : row.position + 1;
}

// Terms that are added to the scores of queries (host::PageScores), from query `first` on.
struct QueryPages {
    const PageScores* of = nullptr; // null: nothing
    size_t first = 0;

    explicit operator bool() const { return of != nullptr; }
    QueryPages from(size_t query) const { return {of, first + query}; }
    float at(size_t query, uint32_t position) const { return of ? of->of(first + query)[position / page_tokens] : 0; }
    // Adds them to the scores of `count` positions from `position` on.
    void add(float* scores, size_t query, uint32_t position, uint32_t count) const {
        for (uint32_t p = 0, end; of && p < count; p = end) {
            end = std::min(count, p + page_tokens - (position + p) % page_tokens);
            for (const float score = at(query, position + p); p < end; p++) scores[p] += score;
        }
    }
};

// The first tokens of a sequence, if they are kept in fp16 (model/kv/window.h): a query's softmax begins with them.
struct Sinks {
    std::array<std::array<float, 256>, FIRST_TOKENS> keys, values;

    Sinks(const LayerCache& cache, uint32_t slot, uint32_t head, uint32_t last_position) {
        const size_t d = cache.k.head_dim();
        for (uint32_t t = 0; t < FIRST_TOKENS && t <= last_position; t++) {
            const host::Place at{cache.first_block(slot), t};
            decode_window(std::span(keys[t]).first(d), cache.k.sink(at, head));
            decode_window(std::span(values[t]).first(d), cache.v.sink(at, head));
        }
    }

    // The softmax of a query at `position` over the keys that it sees: its greatest score, the sum of the weights, which are
    // given.
    struct SoftmaxWeights {
        float largest, total;
        std::array<float, FIRST_TOKENS> of;
    };
    SoftmaxWeights weights(const float* q, size_t d, uint32_t position, float added) const {
        const uint32_t count = std::min(position + 1, FIRST_TOKENS);
        SoftmaxWeights out{-std::numeric_limits<float>::infinity(), 0, {}};
        for (uint32_t t = 0; t < count; t++) {
            for (size_t c = 0; c < d; c++) out.of[t] += q[c] * keys[t][c];
            out.of[t] += added;
            out.largest = std::max(out.largest, out.of[t]);
        }
        for (uint32_t t = 0; t < count; t++) out.total += out.of[t] = std::exp(out.of[t] - out.largest);
        return out;
    }
    // Returns channel c of the weighted sum of the values that a query at `position` sees.
    float sum(const SoftmaxWeights& weights, uint32_t position, size_t c) const {
        float out = weights.of[0] * values[0][c];
        for (uint32_t t = 1; t < FIRST_TOKENS && t <= position; t++) out += weights.of[t] * values[t][c];
        return out;
    }
};

// Some vectors of a kv head: [begin, end); the first is that of `position`. Vectors below `left_out` are left out.
struct VectorRange {
    uint32_t head, begin, end, position;
    uint32_t left_out;
};

// The queries begin .. end - 1 of a kv head: query i is head i % group() of the group that shares it, of row i / group().
struct Queries {
    const LayerCache& cache;
    std::span<const float> q; // [rows][heads][head_dim]
    QueryPages pages;
    std::span<const Row> rows; // consecutive ones of one slot
    uint32_t heads, head, begin, end;

    Row row(size_t i) const { return rows[i / group()]; }
    size_t group() const { return heads / cache.k.heads; }
    size_t number(size_t i) const { return i / group() * heads + head * group() + i % group(); } // of all
    size_t at(size_t i) const { return number(i) * cache.k.head_dim(); }
};

// A thread's scratch memory, kept between calls.
struct AttentionScratch {
    AlignedFloats vectors, tiles, scores;
};

} // namespace tq::cpu
