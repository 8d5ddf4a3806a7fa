// The division of attention on the CPU into ranges and tiles of positions, its partial results, and the scratch memory of a
// thread.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/host/network.h"
#include "model/kv/window.h"
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <hwy/cache_control.h>
#include <limits>
#include <vector>

namespace tq::cpu {

using host::CacheSide, host::LayerCache, host::PageScores, host::Row;

inline constexpr uint32_t kv_tile = 64;    // positions that are decoded together; tiles begin at multiples of it
inline constexpr uint32_t query_tiles = 4; // tiles of queries that share them

static_assert(page_tokens % kv_tile == 0 && host::ring_step % kv_tile == 0); // no tile crosses a page, or the end of a ring

// Positions are divided into ranges, each with a softmax of its own, which are added up in order. The bounds are the same for all
// queries, so that a query's bits depend on nothing but its own position: ranges of 512, and from 8192 on 16 for each doubling.
constexpr uint32_t range_begin(uint32_t range) { return range < 16 ? 512 * range : (16 + range % 16) << (8 + range / 16); }
// Returns the range that a position is in.
constexpr uint32_t range_of(uint32_t position) {
    if (position < range_begin(16)) return position / 512;
    const auto bits = uint32_t(std::bit_width(position));
    return 16 * (bits - 14) + (position >> (bits - 5));
}
static_assert(range_begin(15) == 7680 && range_begin(16) == 8192 && range_begin(17) == 8704 && range_begin(32) == 16384);
static_assert(range_of(8191) == 15 && range_of(8192) == 16 && range_of(8703) == 16 && range_of(16384) == 32);

// The vectors of consecutive tokens, at most kv_tile, of a kv head, within one block of a cache side.
struct StoredTile {
    host::Place first;
    uint32_t head, count;
};

// Keys and values of a sequence: that of a position is token i % block_tokens of block blocks[i / block_tokens], where i is the
// position, or its place in the ring of the window.
struct StoredVectors {
    const CacheSide &k, &v;
    std::span<const uint32_t> blocks;
    uint32_t ring = UINT32_MAX;

    // Returns the tile of positions from `first` to the end of its tile, but before `end`.
    StoredTile tile(uint32_t head, uint32_t first, uint32_t end) const {
        const uint32_t i = first % ring;
        return {{blocks[i / k.block_tokens], i % k.block_tokens}, head, std::min(kv_tile - first % kv_tile, end - first)};
    }
};
inline StoredVectors in_pages(const LayerCache& cache, const Row& row) {
    return {cache.k, cache.v, cache.sequences.table(row.slot)};
}
inline StoredVectors in_window(const LayerCache& cache, const Row& row) {
    return {cache.window->k, cache.window->v, std::span(&row.slot, 1), cache.window->k.block_tokens};
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

// The largest score of no positions: finite, since minus infinity less itself is NaN.
inline constexpr float no_score = -1e30f;

// The softmax over some positions for one query: sums = sum of exp(score - largest) * value, total without the value.
struct Partial {
    alignas(64) std::array<float, 256> sums;
    float largest, total;

    void reset(size_t d) {
        largest = no_score;
        total = 0;
        std::fill_n(sums.begin(), d, 0.0f);
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

// Consecutive ranges of a kv head, begin .. end - 1, of the positions before `positions`. Those below `left_out` are left out.
struct Ranges {
    uint32_t head, begin, end, positions, left_out;
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
