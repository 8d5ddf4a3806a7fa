// Attention on compressed caches. A tile of keys or values is decoded once for all query heads of its kv head, and for a block
// of tokens; for one token, codes of few bits are multiplied without decoding. The softmax is online, tile by tile. Work is
// divided by kv head, and by ranges of the sequence (a few tokens, one after another) or of the queries (many); a thread that has
// finished a piece takes the next.
#include "model/cpu/attention.h"
#include "model/cpu/kernels.h"
#include <algorithm>
#include <atomic>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "model/cpu/elementwise-inl.h"
#include "model/cpu/stored_codes-inl.h"
#include "model/cpu/stored_vectors-inl.h"
#include "model/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {
namespace {

// weights[count] = exp(scores - largest); returns their sum.
float exp_all(float* HWY_RESTRICT weights, size_t count, float largest) {
    V total = hn::Zero(F());
    for (size_t i = 0; i < count; i += lanes) {
        const V weight = exp_of(hn::Sub(hn::LoadU(F(), weights + i), hn::Set(F(), largest)));
        hn::StoreU(weight, F(), weights + i);
        total = hn::Add(total, weight);
    }
    return sum(total);
}

void scale_all(float* x, float by, size_t count) {
    for (size_t i = 0; i < count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(F(), x + i), hn::Set(F(), by)), F(), x + i);
}

// scores[head][p] = q[head] . k[p] for the positions of a tile; rows of scores are kv_tile long.
template <size_t heads>
void score_tile(float* HWY_RESTRICT scores, const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, size_t d) {
    constexpr size_t step = 4; // positions that share the loads of q
    for (size_t p = 0; p < kv_tile; p += step, k += step * d) {
        V sums[heads][step];
        HWY_UNROLL(8)
        for (size_t i = 0; i < heads * step; i++) sums[i / step][i % step] = hn::Zero(F());
        for (size_t c = 0; c < d; c += lanes) {
            V key[step];
            HWY_UNROLL(4)
            for (size_t i = 0; i < step; i++) key[i] = hn::LoadU(F(), k + i * d + c);
            HWY_UNROLL(2)
            for (size_t h = 0; h < heads; h++) {
                const V query = hn::LoadU(F(), q + h * d + c);
                HWY_UNROLL(4)
                for (size_t i = 0; i < step; i++) sums[h][i] = hn::MulAdd(query, key[i], sums[h][i]);
            }
        }
        HWY_UNROLL(8)
        for (size_t i = 0; i < heads * step; i++) scores[i / step * kv_tile + p + i % step] = sum(sums[i / step][i % step]);
    }
}

// y[head][c] += sum over p of weights[head][p] * v[p][c], for the two heads or the one whose sums are `y`.
template <size_t heads>
void add_weighted(float* const* y, const float* HWY_RESTRICT weights, const float* HWY_RESTRICT v, size_t count, size_t d) {
    constexpr size_t step = 4; // vectors of channels that share the loads of the weights
    for (size_t c = 0; c < d; c += step * lanes) {
        V sums[heads][step];
        HWY_UNROLL(8)
        for (size_t i = 0; i < heads * step; i++) sums[i / step][i % step] = hn::LoadU(F(), y[i / step] + c + i % step * lanes);
        const float* from = v + c;
        for (size_t p = 0; p < count; p++, from += d) {
            V value[step];
            HWY_UNROLL(4)
            for (size_t i = 0; i < step; i++) value[i] = hn::LoadU(F(), from + i * lanes);
            HWY_UNROLL(2)
            for (size_t h = 0; h < heads; h++) {
                const V weight = hn::Set(F(), weights[h * kv_tile + p]);
                HWY_UNROLL(4)
                for (size_t i = 0; i < step; i++) sums[h][i] = hn::MulAdd(weight, value[i], sums[h][i]);
            }
        }
        HWY_UNROLL(8)
        for (size_t i = 0; i < heads * step; i++) hn::StoreU(sums[i / step][i % step], F(), y[i / step] + c + i % step * lanes);
    }
}

// Turns the scores of `count` positions into weights; earlier sums are rescaled where there is a larger score.
void update(Partial& part, float* scores, uint32_t count, size_t d) {
    std::fill(scores + count, scores + kv_tile, -std::numeric_limits<float>::infinity());
    V tops = hn::Set(F(), part.largest);
    for (uint32_t p = 0; p < kv_tile; p += lanes) tops = hn::Max(tops, hn::LoadU(F(), scores + p));
    const float largest = hn::GetLane(hn::MaxOfLanes(F(), tops));
    const float keep = std::exp(part.largest - largest);
    part.total = part.total * keep + exp_all(scores, kv_tile, largest);
    part.largest = largest;
    if (keep != 1) scale_all(part.sums.data(), keep, d);
}

// Calls use(of, h) for the heads h .. h + of - 1 of a group: as many fours as possible, then twos, then one.
template <class Use> void each_few_heads(size_t heads, const Use& use) {
    size_t h = 0;
    for (; h + 4 <= heads; h += 4) use(std::integral_constant<size_t, 4>(), h);
    if (h + 2 <= heads) use(std::integral_constant<size_t, 2>(), h), h += 2;
    if (h < heads) use(std::integral_constant<size_t, 1>(), h);
}

// Scores positions first .. first + count - 1 for a group of heads, q in the order that score_codes requires.
void score_group(float* scores, const float* q, const CacheSide& k, uint32_t head, uint32_t first, uint32_t count, size_t heads,
                 float* vectors) {
    const size_t d = k.head_dim();
    if (multiplies_codes(k.codec)) {
        const CodeTile tile(k, head, first, count);
        return each_few_heads(heads, [&](auto of, size_t h) {
            const auto score = is_nibble_trellis(k.codec.type) ? score_codes<of, true> : score_codes<of, false>;
            score(scores + h * kv_tile, q + h * d, tile, count, d);
        });
    }
    load_vectors(vectors, k, head, first, count);
    for (size_t g = 0; g < heads; g += 2)
        (g + 1 < heads ? score_tile<2> : score_tile<1>)(&scores[g * kv_tile], q + g * d, vectors, d);
}

// Adds the weighted values of these positions to parts[group].
void add_group(std::span<Partial> parts, float* weights, const CacheSide& v, uint32_t head, uint32_t first, uint32_t count,
               float* vectors) {
    const size_t d = v.head_dim(), heads = parts.size();
    const auto sums = [&](size_t g) {
        std::array<float*, 4> y;
        for (size_t i = 0; i < y.size(); i++) y[i] = parts[std::min(g + i, heads - 1)].sums.data();
        return y;
    };
    if (multiplies_codes(v.codec)) {
        const CodeTile tile(v, head, first, count);
        return each_few_heads(heads, [&](auto of, size_t h) {
            const auto add = is_nibble_trellis(v.codec.type) ? add_weighted_codes<of, true> : add_weighted_codes<of, false>;
            add(sums(h).data(), weights + h * kv_tile, tile, count, d);
        });
    }
    load_vectors(vectors, v, head, first, count);
    for (size_t g = 0; g < heads; g += 2)
        (g + 1 < heads ? add_weighted<2> : add_weighted<1>)(sums(g).data(), &weights[g * kv_tile], vectors, count, d);
}

// Attends to vectors begin .. end - 1 for the one token's query heads of a kv head: parts[group] get the softmax over these.
void attend_range(const CacheSide& k, const CacheSide& v, const float* q, std::span<Partial> parts, uint32_t head, uint32_t begin,
                  uint32_t end, AttentionScratch& scratch) {
    const size_t d = k.head_dim(), heads = parts.size();
    float* vectors = scratch.vectors.first(kv_tile * d).data();
    float* scores = scratch.scores.first(heads * kv_tile).data();
    if (multiplies_codes(k.codec)) {
        float* const ordered = scratch.tiles.first(heads * d).data();
        for (size_t i = 0; i < heads * d; i++) ordered[i / d * d + place_of(k.codec.type, i % d)] = q[i];
        q = ordered;
    }
    for (Partial& part : parts) part.reset();
    for (uint32_t first = begin; first < end; first += kv_tile) {
        const uint32_t count = std::min(kv_tile, end - first);
        score_group(scores, q, k, head, first, count, heads, vectors);
        for (size_t g = 0; g < heads; g++) update(parts[g], scores + g * kv_tile, count, d);
        add_group(parts, scores, v, head, first, count, vectors);
    }
    if (!multiplies_codes(v.codec)) return;
    for (Partial& part : parts) {
        const auto ordered = part.sums;
        for (size_t c = 0; c < d; c++) part.sums[c] = ordered[place_of(v.codec.type, c)];
    }
}

// Attends to the window up to position `last`: it leaves two rows of partials, before and after the end of the ring.
void attend_window(const WindowVectors& window, const float* q, std::span<Partial> before, std::span<Partial> behind,
                   uint32_t head, uint32_t last, AttentionScratch& scratch) {
    const size_t d = window.k.head_dim();
    const std::span<float> scaled = scratch.tiles.first(before.size() * d);
    for (size_t i = 0; i < scaled.size(); i++) scaled[i] = q[i] / window_unit;
    const uint32_t capacity = window.k.capacity, first = window.positions.first(last), begin = first % capacity,
                   count = last + 1 - first, end = std::min(begin + count, capacity);
    attend_range(window.k, window.v, scaled.data(), before, head, begin, end, scratch);
    attend_range(window.k, window.v, scaled.data(), behind, head, 0, count - (end - begin), scratch);
    for (const auto parts : {before, behind})
        for (Partial& part : parts) part.scale(1 / window_unit);
}

// The queries of one tile: one lane per pair of token and query head, token by token.
struct QueryTile {
    size_t width;           // lanes, padded to whole vectors
    float* q;               // [d][width]
    float* sums;            // [d][width]
    float* scores;          // [kv_tile][width], of a tile of keys; then their weights
    float *largest, *total; // [width]
    float *before, *last;   // [width] positions in (before, last] are visible to a lane; both ascending

    bool sees(uint32_t position) const { return float(position) <= last[width - 1]; }
};

// Turns scores into weights, for `count` positions first + p; earlier sums are rescaled where there is a larger score.
void softmax_tile(const QueryTile& t, size_t d, uint32_t first, uint32_t count, bool is_masked) {
    const V never = hn::Set(F(), -std::numeric_limits<float>::infinity());
    std::fill(t.scores + count * t.width, t.scores + kv_tile * t.width, -std::numeric_limits<float>::infinity());
    for (size_t at = 0; at < t.width; at += lanes) {
        const V before = hn::LoadU(F(), t.largest + at), last = hn::LoadU(F(), t.last + at),
                unseen = hn::LoadU(F(), t.before + at);
        V largest = before;
        float* s = t.scores + at;
        for (uint32_t p = 0; p < kv_tile; p++) {
            V score = hn::LoadU(F(), s + p * t.width);
            if (is_masked) {
                const V position = hn::Set(F(), float(first + p));
                score = hn::IfThenElse(hn::Or(hn::Gt(position, last), hn::Le(position, unseen)), never, score);
                hn::StoreU(score, F(), s + p * t.width);
            }
            largest = hn::Max(largest, score);
        }
        const V keep = exp_of(hn::Sub(before, largest));
        V total = hn::Mul(hn::LoadU(F(), t.total + at), keep);
        for (uint32_t p = 0; p < kv_tile; p++) {
            const V weight = exp_of(hn::Sub(hn::LoadU(F(), s + p * t.width), largest));
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

QueryTile pack_queries(float* storage, float* scores, const Queries& of, uint32_t first) {
    const size_t d = of.cache.k.head_dim(), count = std::min<size_t>(tile_width, of.end - first);
    const size_t width = (count + lanes - 1) / lanes * lanes;
    QueryTile t{width,
                storage,
                storage + d * width,
                scores,
                storage + 2 * d * width,
                storage + (2 * d + 1) * width,
                storage + (2 * d + 2) * width,
                storage + (2 * d + 3) * width};
    std::fill_n(storage, 2 * d * width, 0.0f);
    std::fill_n(t.largest, width, -1e30f); // finite: a tile may have no position that is visible to a lane
    std::fill_n(t.total, width, 0.0f);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < d; c++) t.q[c * width + i] = of.q[of.at(first + i) + c];
    return t;
}

// Sets the positions that are visible to the lanes of a tile: those of the window, or those before it.
void set_bounds(const QueryTile& t, const Queries& of, uint32_t first, bool window) {
    for (size_t i = 0; i < t.width; i++) {
        const size_t query = std::min<size_t>(first + i, of.end - 1); // padding lanes attend like the last query
        const float own = float(of.position + query / of.group()), before = float(of.first_in_window(query)) - 1;
        t.before[i] = window ? before : -1;
        t.last[i] = window ? own : std::min(before, own);
    }
}

size_t query_tile() { return tile_width; }

// Attends to `count` vectors of a kv head from number `at` on, of positions `first` and on; `scale` multiplies them.
void attend_tiles(std::span<const QueryTile> tiles, const CacheSide& k, const CacheSide& v, uint32_t head, uint32_t at,
                  uint32_t first, uint32_t count, float scale, float* vectors) {
    const size_t d = k.head_dim();
    const auto load = [&](const CacheSide& side) {
        load_vectors(vectors, side, head, at, count);
        if (scale != 1) scale_all(vectors, scale, count * d);
    };
    std::fill(vectors + count * d, vectors + kv_tile * d, 0.0f);
    load(k);
    for (const QueryTile& t : tiles) {
        if (!t.sees(first)) continue;
        std::fill_n(t.scores, kv_tile * t.width, 0.0f);
        multiply_tiles(t.scores, {vectors, d, 1}, t.q, d, kv_tile, t.width / lanes);
        softmax_tile(t, d, first, count, float(first + count) > t.last[0] || float(first) <= t.before[t.width - 1]);
    }
    load(v);
    for (const QueryTile& t : tiles)
        if (t.sees(first)) multiply_tiles(t.sums, {vectors, 1, d}, t.scores, kv_tile, d, t.width / lanes);
}

// Attends with queries of.begin .. of.end - 1 to all visible positions. y: [tokens][heads][d]
void attend_block(std::span<float> y, const Queries& of, AttentionScratch& scratch) {
    const size_t d = of.cache.k.head_dim(), storage = (2 * d + 4) * tile_width;
    const uint32_t length = of.position + uint32_t((of.end - 1) / of.group()) + 1, coded = of.first_in_window(of.end - 1);
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
    for (uint32_t first = 0; first < coded; first += kv_tile)
        attend_tiles(tiles, of.cache.k, of.cache.v, of.head, first, first, std::min(kv_tile, coded - first), 1, vectors);
    if (of.cache.window) {
        const WindowVectors& window = *of.cache.window;
        for (size_t i = 0; i < count; i++) set_bounds(tiles[i], of, first_query(i), true);
        for (uint32_t first = of.first_in_window(of.begin), n; first < length; first += n) {
            const uint32_t at = first % window.k.capacity;
            n = std::min({kv_tile, length - first, window.k.capacity - at});
            attend_tiles(tiles, window.k, window.v, of.head, at, first, n, 1 / window_unit, vectors);
        }
    }
    for (uint32_t i = of.begin; i < of.end; i++) {
        const QueryTile& t = tiles[(i - of.begin) / tile_width];
        const size_t lane = (i - of.begin) % tile_width;
        for (size_t c = 0; c < d; c++) y[of.at(i) + c] = t.sums[c * t.width + lane] / t.total[lane];
    }
}

} // namespace
} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tq::cpu {
namespace {

HWY_EXPORT(attend_range);
HWY_EXPORT(attend_window);
HWY_EXPORT(query_tile);
HWY_EXPORT(attend_block);

// Calls body(i, scratch) for all i < count, in order of i: a thread that has finished takes the next.
void each_piece(ThreadPool& pool, uint32_t count, const std::function<void(uint32_t, AttentionScratch&)>& body) {
    std::atomic<uint32_t> next = 0;
    pool.each(std::min(count, pool.threads()), 1, [&](uint32_t, uint32_t) {
        static thread_local AttentionScratch scratch;
        for (uint32_t i = next++; i < count; i = next++) body(i, scratch);
    });
}

void finish(std::span<float> y, const KvCodec& values) {
    if (is_rotated(values.type)) rotate_back(y, values.rotation);
}

// Combines the partials of one query head into y[d].
void combine(std::span<float> y, std::span<const Partial> parts, size_t stride, size_t count) {
    float largest = parts[0].largest, total = 0;
    for (size_t s = 1; s < count; s++) largest = std::max(largest, parts[s * stride].largest);
    std::ranges::fill(y, 0.0f);
    for (size_t s = 0; s < count; s++) {
        const Partial& part = parts[s * stride];
        const float weight = std::exp(part.largest - largest);
        total += part.total * weight;
        for (size_t c = 0; c < y.size(); c++) y[c] += part.sums[c] * weight;
    }
    for (float& v : y) v /= total;
}

void attend_token(ThreadPool& pool, std::span<float> y, std::span<const float> q, const LayerCache& cache, uint32_t heads,
                  uint32_t length) {
    constexpr uint32_t shortest = 256; // minimum positions of a piece
    const uint32_t kv_heads = cache.k.heads, group = heads / kv_heads;
    const size_t d = cache.k.head_dim();
    const uint32_t wanted = (4 * pool.threads() + kv_heads - 1) / kv_heads;                   // so that a slow thread takes few
    const uint32_t coded = cache.window ? cache.window->positions.first(length - 1) : length; // positions read as codes
    const uint32_t ranges = std::min(wanted, (coded + shortest - 1) / shortest), rows = ranges + (cache.window ? 2 : 0);
    static thread_local std::vector<Partial> storage;
    storage.resize(std::max<size_t>(storage.size(), size_t(rows) * heads));
    const std::span parts(storage); // [range, then two rows of the window][head]
    const auto bound = [&](uint32_t range) { return uint32_t(uint64_t(coded) * range / ranges); };
    each_piece(pool, kv_heads * (ranges + (cache.window ? 1 : 0)), [&](uint32_t i, AttentionScratch& scratch) {
        const uint32_t head = i % kv_heads, range = i / kv_heads;
        const float* queries = &q[head * group * d];
        const auto of_head = [&](uint32_t row) { return parts.subspan(row * heads + head * group, group); };
        if (range < ranges) HWY_DYNAMIC_DISPATCH(attend_range)
        (cache.k, cache.v, queries, of_head(range), head, bound(range), bound(range + 1), scratch);
        else HWY_DYNAMIC_DISPATCH(attend_window)(*cache.window, queries, of_head(ranges), of_head(ranges + 1), head, length - 1,
                                                 scratch);
    });
    pool.each(heads, 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t h = begin; h < end; h++) {
            combine(y.subspan(h * d, d), parts.subspan(h), heads, rows);
            finish(y.subspan(h * d, d), cache.v.codec);
        }
    });
}

} // namespace

void attention(ThreadPool& pool, std::span<float> y, std::span<const float> q, const LayerCache& cache, uint32_t heads,
               uint32_t position) {
    const size_t d = cache.k.head_dim();
    const uint32_t kv_heads = cache.k.heads;
    const auto tokens = uint32_t(q.size() / d / heads);
    if (tokens <= few_tokens) { // the same sums as for each alone
        for (uint32_t t = 0; t < tokens; t++)
            attend_token(pool, y.subspan(t * heads * d, heads * d), q.subspan(t * heads * d, heads * d), cache, heads,
                         position + t + 1);
        return;
    }
    const uint32_t queries = tokens * (heads / kv_heads), block = query_tiles * uint32_t(HWY_DYNAMIC_DISPATCH(query_tile)());
    const uint32_t blocks = (queries + block - 1) / block;
    each_piece(pool, kv_heads * blocks, [&](uint32_t i, AttentionScratch& scratch) {
        const uint32_t begin = (blocks - 1 - i / kv_heads) * block; // the longest first
        HWY_DYNAMIC_DISPATCH(attend_block)
        (y, {cache, q, heads, position, i % kv_heads, begin, std::min(queries, begin + block)}, scratch);
    });
    pool.each(tokens * heads, 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) finish(y.subspan(i * d, d), cache.v.codec);
    });
}

} // namespace tq::cpu
#endif
