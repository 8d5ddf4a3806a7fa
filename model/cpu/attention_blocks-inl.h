// Attention with many rows of one slot, for one target: a tile of keys or values is decoded once for a block of queries.
#if defined(TQ_CPU_ATTENTION_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_ATTENTION_BLOCKS_INL_H
#undef TQ_CPU_ATTENTION_BLOCKS_INL_H
#else
#define TQ_CPU_ATTENTION_BLOCKS_INL_H
#endif

#include "model/cpu/attention.h"
#include "model/cpu/elementwise-inl.h"
#include "model/cpu/stored_vectors-inl.h"
#include "model/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

inline void scale_all(float* x, float by, size_t count) {
    for (size_t i = 0; i < count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(F(), x + i), hn::Set(F(), by)), F(), x + i);
}

// The queries of one tile: one lane per pair of token and query head, token by token.
struct QueryTile {
    size_t width;           // lanes, padded to whole vectors
    float* q;               // [d][width]
    float* sums;            // [d][width]
    float* scores;          // [kv_tile][width], of a tile of keys; then their weights
    float *largest, *total; // [width]
    float *before, *last;   // [width] positions in (before, last] are visible to a lane; both ascending
    float* added;           // [width], to the scores of a tile of keys

    bool sees(uint32_t position) const { return float(position) <= last[width - 1]; }
};

// Turns scores into weights, for `count` positions first + p; earlier sums are rescaled if there is a larger score.
// The online softmax: with each tile of keys the largest score so far may grow, and then the sums so far are multiplied by
// exp(old - new). A lane is a query, so all of this is vertical, without sums across lanes. A masked score is minus infinity and
// gets the weight 0. `largest` starts at a finite number, since minus infinity less itself is NaN if a lane sees nothing of its
// first tile.
inline void softmax_tile(const QueryTile& t, size_t d, uint32_t first, uint32_t count, bool is_masked) {
    const V never = hn::Set(F(), -std::numeric_limits<float>::infinity());
    std::fill(t.scores + count * t.width, t.scores + kv_tile * t.width, -std::numeric_limits<float>::infinity());
    for (size_t at = 0; at < t.width; at += lanes) {
        const V before = hn::LoadU(F(), t.largest + at), last = hn::LoadU(F(), t.last + at),
                unseen = hn::LoadU(F(), t.before + at), added = hn::LoadU(F(), t.added + at);
        V largest = before;
        float* s = t.scores + at;
        for (uint32_t p = 0; p < kv_tile; p++) {
            V score = hn::LoadU(F(), s + p * t.width);
            if (is_masked) {
                const V position = hn::Set(F(), float(first + p));
                score = hn::IfThenElse(hn::Or(hn::Gt(position, last), hn::Le(position, unseen)), never, score);
                hn::StoreU(score, F(), s + p * t.width);
            }
            largest = hn::Max(largest, hn::Add(score, added));
        }
        const V keep = exp_of(hn::Sub(before, largest));
        V total = hn::Mul(hn::LoadU(F(), t.total + at), keep);
        for (uint32_t p = 0; p < kv_tile; p++) {
            const V weight = exp_of(hn::Sub(hn::Add(hn::LoadU(F(), s + p * t.width), added), largest));
            total = hn::Add(total, weight);
            hn::StoreU(weight, F(), s + p * t.width);
        }
        hn::StoreU(total, F(), t.total + at);
        hn::StoreU(largest, F(), t.largest + at);
        for (size_t c = 0; c < d; c++) {
            float* y = t.sums + c * t.width + at;
            hn::StoreU(hn::Mul(hn::LoadU(F(), y), keep), F(), y);
        }
    }
}

// Queries are transposed, [channel][query], so that a channel of a key is multiplied with all queries at once. If the first
// tokens of a sequence are kept in fp16, softmax starts with these, and the tiles leave them out.
inline QueryTile pack_queries(float* storage, float* scores, const Queries& of, uint32_t first) {
    const size_t d = of.cache.k.head_dim(), count = std::min<size_t>(tile_width, of.end - first);
    const size_t width = (count + lanes - 1) / lanes * lanes;
    QueryTile t{.width = width,
                .q = storage,
                .sums = storage + d * width,
                .scores = scores,
                .largest = storage + 2 * d * width,
                .total = storage + (2 * d + 1) * width,
                .before = storage + (2 * d + 2) * width,
                .last = storage + (2 * d + 3) * width,
                .added = storage + (2 * d + 4) * width};
    std::fill_n(storage, 2 * d * width, 0.0f);
    std::fill_n(t.added, width, 0.0f);
    std::fill_n(t.largest, width, -1e30f); // finite: a tile may have no position that is visible to a lane
    std::fill_n(t.total, width, 0.0f);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < d; c++) t.q[c * width + i] = of.q[of.at(first + i) + c];
    if (!of.cache.reads_sinks()) return t;
    const Sinks sinks(of.cache, of.row(first).slot, of.head, of.row(first + count - 1).position);
    for (size_t i = 0; i < count; i++) {
        const uint32_t position = of.row(first + i).position;
        const Sinks::SoftmaxWeights weights =
            sinks.weights(&of.q[of.at(first + i)], d, position, of.pages.at(of.number(first + i), 0));
        t.largest[i] = weights.largest;
        t.total[i] = weights.total;
        for (size_t c = 0; c < d; c++) t.sums[c * width + i] = sinks.sum(weights, position, c);
    }
    return t;
}

// Sets the positions that are visible to the lanes of a tile: those of the window, or those before it. Positions are compared as
// floats, in the lanes of scores; they are exact up to 2^24.
inline void set_bounds(const QueryTile& t, const Queries& of, uint32_t first, bool window) {
    for (size_t i = 0; i < t.width; i++) {
        const size_t query = std::min<size_t>(first + i, of.end - 1); // padding lanes attend like the last query
        const Row row = of.row(query);
        const float own = float(row.position), before = float(first_in_window(of.cache, row)) - 1,
                    sink = float(of.cache.left_out()) - 1; // the first positions are no tile's
        t.before[i] = window ? std::max(before, sink) : sink;
        t.last[i] = window ? own : std::min(before, own);
    }
}

// Sets the terms that are added to the scores of keys from `position` on, which are in one page, for the queries from `first` on.
inline void set_added(const QueryTile& t, const Queries& of, uint32_t first, uint32_t position) {
    for (size_t i = 0; of.pages && i < t.width; i++) {
        const size_t query = std::min<size_t>(first + i, of.end - 1);
        t.added[i] = of.pages.at(of.number(query), std::min(position, of.row(query).position)); // a later page is not seen
    }
}

inline size_t query_tile() { return tile_width; }

// Attends to a tile of keys and values, of positions `first` and on; `scale` multiplies them.
// Keys are decoded once and multiplied with all tiles of queries, then the values into the same memory. Tiles whose last query is
// before the first key are passed by. The mask is applied only if a bound of some lane lies within the tile.
inline void attend_tiles(std::span<const QueryTile> tiles, const Queries& of, const StoredVectors& from, const StoredTile& stored,
                         const StoredTile& next, uint32_t first, float scale, float* vectors) {
    const size_t d = from.k.head_dim();
    const uint32_t count = stored.count;
    const auto load = [&](const CacheSide& side, const NextTile& then) {
        load_vectors(vectors, side, stored, then);
        if (scale != 1) scale_all(vectors, scale, count * d);
    };
    std::fill(vectors + count * d, vectors + kv_tile * d, 0.0f);
    load(from.k, NextTile(from.v, stored));
    for (const QueryTile& t : tiles) {
        if (!t.sees(first)) continue;
        set_added(t, of, of.begin + uint32_t(&t - tiles.data()) * tile_width, first);
        std::fill_n(t.scores, kv_tile * t.width, 0.0f);
        multiply_tiles(t.scores, {vectors, d, 1}, t.q, d, kv_tile, t.width / lanes);
        softmax_tile(t, d, first, count, float(first + count) > t.last[0] || float(first) <= t.before[t.width - 1]);
    }
    load(from.v, NextTile(from.k, next));
    for (const QueryTile& t : tiles)
        if (t.sees(first)) multiply_tiles(t.sums, {vectors, 1, d}, t.scores, kv_tile, d, t.width / lanes);
}

// Attends with queries of.begin .. of.end - 1 to all visible positions, in tiles whose bounds depend on nothing but the positions
// and the ring, so that a query's sums do not depend on the others. y: [rows][heads][d]
inline void attend_block(std::span<float> y, const Queries& of, AttentionScratch& scratch) {
    const size_t d = of.cache.k.head_dim(), storage = (2 * d + 5) * tile_width;
    const Row last = of.row(of.end - 1);
    const uint32_t length = last.position + 1, coded = first_in_window(of.cache, last);
    const size_t count = (of.end - of.begin + tile_width - 1) / tile_width;
    float *vectors = scratch.vectors.first(kv_tile * d).data(), *packed = scratch.tiles.first(count * storage).data();
    float* scores = scratch.scores.first(count * kv_tile * tile_width).data();
    std::array<QueryTile, query_tiles> storage_of_tiles;
    const std::span tiles = std::span(storage_of_tiles).first(count);
    const auto first_query = [&](size_t tile) { return of.begin + uint32_t(tile * tile_width); };
    for (size_t i = 0; i < count; i++) {
        tiles[i] = pack_queries(packed + i * storage, scores + i * kv_tile * tile_width, of, first_query(i));
        set_bounds(tiles[i], of, first_query(i), false);
    }
    const StoredVectors pages = in_pages(of.cache, last);
    const auto tile_at = [&](uint32_t first) { return pages.tile(of.head, first, std::min(kv_tile, coded - first)); };
    for (uint32_t first = 0, next; first < coded; first = next) {
        next = first + kv_tile;
        attend_tiles(tiles, of, pages, tile_at(first), tile_at(next < coded ? next : first), first, 1, vectors);
    }
    if (of.cache.window) {
        const StoredVectors window = in_window(of.cache, last);
        for (size_t i = 0; i < count; i++) set_bounds(tiles[i], of, first_query(i), true);
        for (uint32_t first = first_in_window(of.cache, of.row(of.begin)), n; first < length; first += n) {
            const uint32_t ring = window.k.block_tokens, at = first % ring;
            n = std::min({kv_tile - first % kv_tile, length - first, ring - at});
            const StoredTile tile = window.tile(of.head, at, n);
            attend_tiles(tiles, of, window, tile, tile, first, 1 / window_unit, vectors);
        }
    }
    for (uint32_t i = of.begin; i < of.end; i++) {
        const QueryTile& t = tiles[(i - of.begin) / tile_width];
        const size_t lane = (i - of.begin) % tile_width;
        for (size_t c = 0; c < d; c++) y[of.at(i) + c] = t.sums[c * t.width + lane] / t.total[lane];
    }
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
