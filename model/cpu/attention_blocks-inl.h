// Attention with many rows of one slot, for one target: a tile of keys or values is decoded once for a block of queries.
// A lane is a query, where in attention_rows-inl.h it is one of several channels or positions of a sum. So that a row has the
// same bits alone and in a block, each number comes from the same operations in the same order: a score is the sum of as many
// sums as a vector has lanes there, which are added in the order of lane_sums-inl.h; likewise the weights of a tile; codes whose
// scale multiplies the sum there are decoded without it here; and each range of positions has a softmax of its own.
#if defined(TQ_CPU_ATTENTION_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_ATTENTION_BLOCKS_INL_H
#undef TQ_CPU_ATTENTION_BLOCKS_INL_H
#else
#define TQ_CPU_ATTENTION_BLOCKS_INL_H
#endif

#include "model/cpu/attention.h"
#include "model/cpu/code_products-inl.h"
#include "model/cpu/elementwise-inl.h"
#include "model/cpu/lane_sums-inl.h"
#include "model/cpu/stored_vectors-inl.h"
#include "model/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// The softmaxes of the queries of one tile.
struct TileSums {
    float* of;              // [d][width]
    float *largest, *total; // [width]
};

// The queries of one tile: one lane per pair of token and query head, token by token.
struct QueryTile {
    size_t width;         // lanes, padded to whole vectors
    float* q;             // [d][width], in the order in which products are added
    TileSums range, all;  // over the range at hand, and over all before it
    float* scores;        // [kv_tile][width], of a tile of keys; then their weights
    float *before, *last; // [width] positions in (before, last] are visible to a lane; both ascending
    float* added;         // [width], to the scores of a tile of keys

    bool sees(uint32_t position) const { return float(position) <= last[width - 1]; }
};

inline void reset(const TileSums& sums, size_t d, size_t width) {
    std::fill_n(sums.of, d * width, 0.0f);
    std::fill_n(sums.largest, width, no_score);
    std::fill_n(sums.total, width, 0.0f);
}

// The stored vectors of a side as attention_rows-inl.h multiplies them.
struct SideOrder {
    bool scales_sums;       // whether a vector's scale multiplies its score, or the weight of a value, and not its levels
    uint16_t channels[256]; // of keys: those of the lane that is added first, then those of the second, ...

    explicit SideOrder(const KvCodec& codec) : scales_sums(multiplies_codes(codec) && !is_unequal(codec.type)) {
        const size_t d = codec.head_dim(), steps = d / lanes;
        size_t number[lanes];
        for (size_t n = 0; n < lanes; n++) number[lane_in_order(n)] = n;
        for (size_t c = 0; c < d; c++) {
            const size_t place = place_in(codec, c);
            channels[number[place % lanes] * steps + place / lanes] = uint16_t(c);
        }
    }
};

// Factors of the scores or the weights of a tile's vectors: their scales, or 1.
struct Scales {
    float of[kv_tile];

    Scales(const CacheSide& side, const StoredTile& tile, uint32_t begin, const SideOrder& order) {
        std::ranges::fill(of, 1.0f);
        for (uint32_t p = 0; order.scales_sums && p < tile.count; p++)
            of[begin + p] = half_to_float(side.scales({tile.first.block, tile.first.token + p}, tile.head)[0]);
    }
};

inline constexpr size_t lane_pair = lanes < 2 ? 1 : 2, score_rows = tile_rows / lane_pair;

// pair[row, vector] = the sum of two lanes (or of the only one), each of `steps` products in a chain of its own, for score_rows
// keys and the vectors of queries. The channels are those of the two lanes.
template <size_t vectors> HWY_INLINE void multiply_pair(V (&pair)[score_rows * vectors], const float* HWY_RESTRICT keys,
                                                        const float* HWY_RESTRICT q, const uint16_t* HWY_RESTRICT channels,
                                                        size_t steps, size_t d) {
    constexpr size_t count = score_rows * vectors;
    V sums[lane_pair][score_rows][vectors];
    HWY_UNROLL(24)
    for (size_t i = 0; i < lane_pair * count; i++) sums[i / count][i % count / vectors][i % vectors] = hn::Zero(F());
    for (size_t step = 0; step < steps; step++) {
        HWY_UNROLL(2)
        for (size_t lane = 0; lane < lane_pair; lane++) {
            const size_t at = lane * steps + step;
            const float* const key = keys + channels[at];
            V x[vectors];
            HWY_UNROLL(3)
            for (size_t v = 0; v < vectors; v++) x[v] = hn::LoadU(F(), q + (at * vectors + v) * lanes);
            HWY_UNROLL(4)
            for (size_t r = 0; r < score_rows; r++) {
                const V w = hn::Set(F(), key[r * d]);
                HWY_UNROLL(3)
                for (size_t v = 0; v < vectors; v++) sums[lane][r][v] = hn::MulAdd(w, x[v], sums[lane][r][v]);
            }
        }
    }
    HWY_UNROLL(12)
    for (size_t i = 0; i < count; i++) {
        pair[i] = sums[0][i / vectors][i % vectors];
        if constexpr (lane_pair == 2) pair[i] = hn::Add(pair[i], sums[lane_pair - 1][i / vectors][i % vectors]);
    }
}

// scores[row][i] = by[row] * (keys[row] . query i) for score_rows keys, vectors * lanes queries.
// The sum of a pair of lanes waits until there is one of equal length to be added to, as a digit of a binary counter waits for
// the next carry.
template <size_t vectors> HWY_INLINE void score_few(float* HWY_RESTRICT scores, const float* HWY_RESTRICT keys,
                                                    const float* HWY_RESTRICT by, const float* HWY_RESTRICT q,
                                                    const uint16_t* HWY_RESTRICT channels, size_t d) {
    constexpr size_t count = score_rows * vectors, pairs = lanes / lane_pair;
    const size_t steps = d / lanes, channels_of_pair = lane_pair * steps;
    HWY_ALIGN float waiting[lane_bits == 0 ? 1 : lane_bits][count * lanes];
    for (size_t n = 0; n < pairs; n++, q += channels_of_pair * vectors * lanes, channels += channels_of_pair) {
        V sums[count];
        multiply_pair<vectors>(sums, keys, q, channels, steps, d);
        size_t bit = 0;
        for (; (n >> bit & 1) != 0; bit++) {
            HWY_UNROLL(12)
            for (size_t i = 0; i < count; i++) sums[i] = hn::Add(sums[i], hn::Load(F(), waiting[bit] + i * lanes));
        }
        if (n + 1 == pairs) {
            HWY_UNROLL(12)
            for (size_t i = 0; i < count; i++)
                hn::StoreU(hn::Mul(sums[i], hn::Set(F(), by[i / vectors])), F(), scores + i * lanes);
        } else {
            HWY_UNROLL(12)
            for (size_t i = 0; i < count; i++) hn::Store(sums[i], F(), waiting[bit] + i * lanes);
        }
    }
}

// Scores a tile of keys.
inline void score_keys(const QueryTile& t, const float* keys, const float* by, const SideOrder& order, size_t d) {
    const auto score = t.width == 3 * lanes ? score_few<3> : t.width == 2 * lanes ? score_few<2> : score_few<1>;
    for (size_t row = 0; row < kv_tile; row += score_rows)
        score(t.scores + row * t.width, keys + row * d, by + row, t.q, order.channels, d);
}

// Turns scores into weights times by[kv_tile], for positions begin .. end - 1 of the tile from `first` on; earlier sums are
// rescaled if there is a larger score.
// The online softmax: with each tile of keys the largest score so far may grow, and then the sums so far are multiplied by
// exp(old - new). A lane is a query, so all of this is vertical, without sums across lanes. A masked score is minus infinity and
// gets the weight 0.
inline void softmax_tile(const QueryTile& t, const float* by, size_t d, uint32_t first, uint32_t begin, uint32_t end,
                         bool is_masked) {
    const V never = hn::Set(F(), -std::numeric_limits<float>::infinity());
    std::fill(t.scores, t.scores + begin * t.width, -std::numeric_limits<float>::infinity());
    std::fill(t.scores + end * t.width, t.scores + kv_tile * t.width, -std::numeric_limits<float>::infinity());
    for (size_t at = 0; at < t.width; at += lanes) {
        const V before = hn::LoadU(F(), t.range.largest + at), last = hn::LoadU(F(), t.last + at),
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
        V totals[lanes];
        for (V& total : totals) total = hn::Zero(F());
        for (uint32_t p = 0; p < kv_tile; p++) {
            const V weight = exp_of(hn::Sub(hn::Add(hn::LoadU(F(), s + p * t.width), added), largest));
            totals[p % lanes] = hn::Add(totals[p % lanes], weight);
            hn::StoreU(hn::Mul(weight, hn::Set(F(), by[p])), F(), s + p * t.width);
        }
        const V total = sum_in_order(totals);
        hn::StoreU(hn::MulAdd(hn::LoadU(F(), t.range.total + at), keep, total), F(), t.range.total + at);
        hn::StoreU(largest, F(), t.range.largest + at);
        if (hn::AllTrue(F(), hn::Eq(keep, hn::Set(F(), 1)))) continue; // seldom is a score larger than all before it
        for (size_t c = 0; c < d; c++) {
            float* y = t.range.of + c * t.width + at;
            hn::StoreU(hn::Mul(hn::LoadU(F(), y), keep), F(), y);
        }
    }
}

// Adds the softmax over the range at hand, whose sums are multiplied by `unit`, to that of the ranges before it.
inline void add_range(const QueryTile& t, size_t d, float unit) {
    for (size_t at = 0; at < t.width; at += lanes) {
        const V before = hn::LoadU(F(), t.all.largest + at), now = hn::LoadU(F(), t.range.largest + at);
        const V largest = hn::Max(before, now), keep = exp_of(hn::Sub(before, largest)), weight = exp_of(hn::Sub(now, largest));
        const auto add = [&](float* to, V sum) {
            hn::StoreU(hn::MulAdd(hn::LoadU(F(), to + at), keep, hn::Mul(sum, weight)), F(), to + at);
        };
        for (size_t c = 0; c < d; c++)
            add(t.all.of + c * t.width, hn::Mul(hn::LoadU(F(), t.range.of + c * t.width + at), hn::Set(F(), unit)));
        add(t.all.total, hn::LoadU(F(), t.range.total + at));
        hn::StoreU(largest, F(), t.all.largest + at);
    }
}

// Queries are transposed, [channel][query], so that a channel of a key is multiplied with all queries at once, and multiplied by
// `unit`.
inline void pack_queries(const QueryTile& t, const Queries& of, uint32_t first, const SideOrder& order, float unit) {
    const size_t d = of.cache.k.head_dim(), count = std::min<size_t>(tile_width, of.end - first);
    if (count < t.width) std::fill_n(t.q, d * t.width, 0.0f);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < d; c++) t.q[c * t.width + i] = of.q[of.at(first + i) + order.channels[c]] * unit;
}

// Makes a tile of queries from `first` on. If the first tokens of a sequence are kept in fp16, softmax starts with these, and the
// tiles of keys leave them out.
inline QueryTile make_tile(float* storage, float* scores, const Queries& of, uint32_t first) {
    const size_t d = of.cache.k.head_dim(), count = std::min<size_t>(tile_width, of.end - first);
    const size_t width = (count + lanes - 1) / lanes * lanes;
    float* const rows = storage + 3 * d * width; // of `width` numbers
    QueryTile t{.width = width,
                .q = storage,
                .range = {storage + d * width, rows, rows + width},
                .all = {storage + 2 * d * width, rows + 2 * width, rows + 3 * width},
                .scores = scores,
                .before = rows + 4 * width,
                .last = rows + 5 * width,
                .added = rows + 6 * width};
    std::fill_n(t.added, width, 0.0f);
    reset(t.all, d, width);
    if (!of.cache.reads_sinks()) return t;
    const Sinks sinks(of.cache, of.row(first).slot, of.head, of.row(first + count - 1).position);
    for (size_t i = 0; i < count; i++) {
        const uint32_t position = of.row(first + i).position;
        const Sinks::SoftmaxWeights weights =
            sinks.weights(&of.q[of.at(first + i)], d, position, of.pages.at(of.number(first + i), 0));
        t.all.largest[i] = weights.largest;
        t.all.total[i] = weights.total;
        for (size_t c = 0; c < d; c++) t.all.of[c * width + i] = sinks.sum(weights, position, c);
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

// Attends with queries of.begin .. of.end - 1 to all visible positions. y: [rows][heads][d]
class BlockAttention {
  public:
    BlockAttention(const Queries& of, AttentionScratch& scratch)
        : of_(of), d_(of.cache.k.head_dim()), vectors_(scratch.vectors.first(kv_tile * d_).data()) {
        const size_t storage = (3 * d_ + 7) * tile_width, count = (of.end - of.begin + tile_width - 1) / tile_width;
        float* packed = scratch.tiles.first(count * storage).data();
        float* scores = scratch.scores.first(count * kv_tile * tile_width).data();
        tiles_ = std::span(storage_).first(count);
        for (size_t i = 0; i < count; i++)
            tiles_[i] = make_tile(packed + i * storage, scores + i * kv_tile * tile_width, of, first_query(i));
    }

    void attend() {
        const Row last = of_.row(of_.end - 1);
        const uint32_t coded = first_in_window(of_.cache, last);
        attend_side(in_pages(of_.cache, last), false, 0, coded);
        if (of_.cache.window)
            attend_side(in_window(of_.cache, last), true, first_in_window(of_.cache, of_.row(of_.begin)), last.position + 1);
    }

    void store(std::span<float> y) const {
        for (uint32_t i = of_.begin; i < of_.end; i++) {
            const QueryTile& t = tiles_[(i - of_.begin) / tile_width];
            const size_t lane = (i - of_.begin) % tile_width;
            for (size_t c = 0; c < d_; c++) y[of_.at(i) + c] = t.all.of[c * t.width + lane] / t.all.total[lane];
        }
    }

  private:
    uint32_t first_query(size_t tile) const { return of_.begin + uint32_t(tile * tile_width); }

    // Attends to positions begin .. end - 1 in pages, range by range, or to those of the window, which are one range.
    void attend_side(const StoredVectors& from, bool window, uint32_t begin, uint32_t end) {
        const SideOrder keys(from.k.codec), values(from.v.codec);
        const float unit = window ? window_unit : 1;
        for (size_t i = 0; i < tiles_.size(); i++) {
            set_bounds(tiles_[i], of_, first_query(i), window);
            pack_queries(tiles_[i], of_, first_query(i), keys, 1 / unit);
        }
        for (uint32_t first = begin, after; first < end; first = after) {
            after = window ? end : std::min(end, range_begin(range_of(first) + 1));
            for (const QueryTile& t : tiles_) reset(t.range, d_, t.width);
            for (uint32_t at = first; at < after;) at += add_tiles(from, keys, values, at, after, end);
            for (const QueryTile& t : tiles_)
                if (t.sees(first)) add_range(t, d_, 1 / unit);
        }
    }

    // Adds the tile of keys and values that begins at position `at`, and returns its length.
    // Keys are decoded once and multiplied with all tiles of queries, then the values into the same memory. Tiles whose last
    // query is before the first key are passed by. The mask is applied only if a bound of some lane lies within the tile.
    uint32_t add_tiles(const StoredVectors& from, const SideOrder& keys, const SideOrder& values, uint32_t at, uint32_t end,
                       uint32_t last) {
        const StoredTile stored = from.tile(of_.head, at, end);
        const uint32_t first = at - at % kv_tile, begin = at - first, after = begin + stored.count;
        const StoredTile next = first + after < last ? from.tile(of_.head, first + after, last) : stored;
        const Scales key_scales(from.k, stored, begin, keys), value_scales(from.v, stored, begin, values);
        std::fill(vectors_, vectors_ + begin * d_, 0.0f);
        std::fill(vectors_ + after * d_, vectors_ + kv_tile * d_, 0.0f);
        load_vectors(vectors_ + begin * d_, from.k, stored, NextTile(from.v, stored), keys.scales_sums);
        for (size_t i = 0; i < tiles_.size(); i++) {
            const QueryTile& t = tiles_[i];
            if (!t.sees(at)) continue;
            set_added(t, of_, first_query(i), at);
            score_keys(t, vectors_, key_scales.of, keys, d_);
            softmax_tile(t, value_scales.of, d_, first, begin, after,
                         float(first + after) > t.last[0] || float(at) <= t.before[t.width - 1]);
        }
        load_vectors(vectors_ + begin * d_, from.v, stored, NextTile(from.k, next), values.scales_sums);
        for (const QueryTile& t : tiles_)
            if (t.sees(at)) multiply_tiles(t.range.of, {vectors_, 1, d_}, t.scores, kv_tile, d_, t.width / lanes);
        return stored.count;
    }

    const Queries& of_;
    const size_t d_;
    float* const vectors_;
    std::array<QueryTile, query_tiles> storage_;
    std::span<QueryTile> tiles_;
};

inline void attend_block(std::span<float> y, const Queries& of, AttentionScratch& scratch) {
    BlockAttention block(of, scratch);
    block.attend();
    block.store(y);
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
