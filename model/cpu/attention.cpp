// Attention on compressed caches. A tile of keys or values is decoded once for all query heads of its kv head, and for a block
// of tokens; for one token, codes of few bits are multiplied without decoding. The softmax is online, tile by tile.
// Division of work. Separate rows: a piece is a kv head and a range of the positions (RowPieces), so that one token keeps
// all threads busy; the window and the first tokens are pieces of their own, because they are fp16. Each piece leaves
// partial softmaxes (largest score, sum of weights, weighted values), and combine() adds them up in a fixed order. The bounds of
// ranges depend on the row's own position and the number of threads, not on other rows: this keeps the bits of a token that
// shares a pass. A block: a piece is some queries of a kv head over all their positions, and needs no partials. Pieces have
// different lengths, because a later query sees more, so a thread that has finished takes the next one, the longest first.
#include "model/cpu/attention.h"
#include "base/per_thread.h"
#include "model/cpu/kernels.h"
#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "model/cpu/attention_blocks-inl.h"
#include "model/cpu/code_products-inl.h"
#include "model/cpu/elementwise-inl.h"
#include "model/cpu/stored_vectors-inl.h"

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

// scores[head][p] = q[head] . k[p] for the positions of a tile, and up to three after them; rows of scores are kv_tile long.
template <size_t heads>
void score_tile(float* HWY_RESTRICT scores, const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, size_t count, size_t d) {
    constexpr size_t step = 4; // positions that share the loads of q
    for (size_t p = 0; p < count; p += step, k += step * d) {
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

// Turns the scores of `count` positions into weights; earlier sums are rescaled if there is a larger score.
void update(Partial& part, float* scores, uint32_t count, size_t d) {
    std::fill(scores + count, scores + kv_tile, -std::numeric_limits<float>::infinity());
    V tops = hn::Set(F(), part.largest);
    for (uint32_t p = 0; p < kv_tile; p += lanes) tops = hn::Max(tops, hn::LoadU(F(), scores + p));
    const float largest = hn::GetLane(hn::MaxOfLanes(F(), tops));
    const float total = exp_all(scores, kv_tile, largest);
    if (largest != part.largest) {
        const float keep = std::exp(part.largest - largest);
        part.total *= keep;
        scale_all(part.sums.data(), keep, d);
        part.largest = largest;
    }
    part.total += total;
}

// Scores the decoded keys of a tile for a group of heads.
void score_decoded(float* scores, const float* q, const float* keys, size_t count, size_t heads, size_t d) {
    for (size_t g = 0; g < heads; g += 2)
        (g + 1 < heads ? score_tile<2> : score_tile<1>)(&scores[g * kv_tile], q + g * d, keys, count, d);
}

// Adds the weighted decoded values of a tile to parts[group].
void add_decoded(std::span<Partial> parts, const float* weights, const float* values, size_t count, size_t d) {
    const size_t heads = parts.size();
    for (size_t g = 0; g < heads; g += 2) {
        float* const y[] = {parts[g].sums.data(), parts[std::min(g + 1, heads - 1)].sums.data()};
        (g + 1 < heads ? add_weighted<2> : add_weighted<1>)(y, &weights[g * kv_tile], values, count, d);
    }
}

// Attends to a range for one row's query heads of a kv head: parts[group] get the softmax over it.
void attend_range(const StoredVectors& from, const float* q, const QueryPages& pages, std::span<Partial> parts,
                  const VectorRange& range, AttentionScratch& scratch) {
    const auto [head, begin, end, position, left_out] = range;
    const auto& [k, v, blocks] = from;
    const size_t d = k.head_dim(), heads = parts.size();
    float* vectors = scratch.vectors.first(kv_tile * d).data();
    float* scores = scratch.scores.first(heads * kv_tile).data();
    std::optional<const CodeScores> code_scores;
    std::optional<const CodeSums> code_sums;
    if (multiplies_codes(k.codec)) code_scores.emplace(k, q, heads, scratch.tiles.first(heads * d).data());
    if (multiplies_codes(v.codec)) code_sums.emplace(v);
    for (Partial& part : parts) part.reset();
    if (end <= left_out) return;
    const auto tile_at = [&](uint32_t first) { return from.tile(head, first, std::min(kv_tile, end - first)); };
    for (uint32_t first = begin, after; first < end; first = after) {
        after = first + kv_tile;
        const StoredTile tile = tile_at(first);
        // Tiles that are prefetched while keys, and while values are read. Codes that are multiplied as they are need two tiles
        // ahead: a prefetch of one tile would come too late. Decoding is slower, and needs one.
        const bool is_far = code_scores && code_sums && after + kv_tile < end;
        const StoredTile next = tile_at(is_far ? after + kv_tile : after < end ? after : first);
        const NextTile then_keys(is_far ? k : v, is_far ? next : tile), then_values(is_far ? v : k, next);
        if (code_scores) {
            code_scores->score(scores, tile, then_keys);
        } else {
            load_vectors(vectors, k, tile, then_keys);
            score_decoded(scores, q, vectors, tile.count, heads, d);
        }
        for (size_t g = 0; g < heads; g++) pages.add(scores + g * kv_tile, g, position + first - begin, tile.count);
        for (size_t g = 0; g < heads && first == 0; g++)
            std::fill_n(scores + g * kv_tile, left_out, -std::numeric_limits<float>::infinity());
        for (size_t g = 0; g < heads; g++) update(parts[g], scores + g * kv_tile, tile.count, d);
        if (code_sums) {
            code_sums->add(parts, scores, tile, then_values);
        } else {
            load_vectors(vectors, v, tile, then_values);
            add_decoded(parts, scores, vectors, tile.count, d);
        }
    }
    if (code_sums) code_sums->in_order(parts);
}

// Attends to the window of a row: it leaves two rows of partials, before and after the end of the ring.
void attend_window(const LayerCache& cache, const Row& row, const float* q, const QueryPages& pages, std::span<Partial> before,
                   std::span<Partial> behind, uint32_t head, AttentionScratch& scratch) {
    const StoredVectors window = in_window(cache, row);
    const size_t d = window.k.head_dim();
    const std::span<float> scaled = scratch.tiles.first(before.size() * d);
    for (size_t i = 0; i < scaled.size(); i++) scaled[i] = q[i] / window_unit;
    const uint32_t ring = window.k.block_tokens, begins = first_in_window(cache, row),
                   first = std::min(std::max(begins, cache.left_out()), row.position + 1), begin = first % ring,
                   count = row.position + 1 - first, end = std::min(begin + count, ring);
    attend_range(window, scaled.data(), pages, before, {head, begin, end, first, 0}, scratch);
    attend_range(window, scaled.data(), pages, behind, {head, 0, count - (end - begin), first + end - begin, 0}, scratch);
    for (const auto parts : {before, behind})
        for (Partial& part : parts) part.scale(1 / window_unit);
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

// Leaves the partials of a sequence's first tokens.
void attend_sink(const LayerCache& cache, const Row& row, const float* q, const QueryPages& pages, std::span<Partial> parts,
                 uint32_t head) {
    const Sinks sinks(cache, row.slot, head, row.position);
    const size_t d = cache.k.head_dim();
    for (size_t g = 0; g < parts.size(); g++) {
        const Sinks::SoftmaxWeights weights = sinks.weights(q + g * d, d, row.position, pages.at(g, 0));
        parts[g].largest = weights.largest;
        parts[g].total = weights.total;
        for (size_t c = 0; c < d; c++) parts[g].sums[c] = sinks.sum(weights, row.position, c);
    }
}

// Calls body(i, scratch) for all i < count, in order of i: a thread that has finished takes the next.
void each_piece(ThreadPool& pool, uint32_t count, const std::function<void(uint32_t, AttentionScratch&)>& body) {
    std::atomic<uint32_t> next = 0;
    pool.each(std::min(count, pool.threads()), 1, [&](uint32_t, uint32_t) {
        auto& scratch = per_thread<AttentionScratch>();
        for (uint32_t i = next++; i < count; i = next++) body(i, scratch);
    });
}

void finish(std::span<float> y, const KvCodec& values) {
    if (is_turboquant(values.type)) rotate_back(y, values.rotation);
}

// Partials are added in the order of their pieces, whichever thread was first.
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

// The operands of attention.
struct Operands {
    std::span<float> y;
    std::span<const float> q; // [rows][heads][head_dim]
    QueryPages pages;
    const LayerCache& cache;
    uint32_t heads;
    std::span<const Row> rows;

    Operands part(size_t first, size_t count) const {
        const size_t cols = heads * cache.k.head_dim();
        return {.y = y.subspan(first * cols, count * cols),
                .q = q.subspan(first * cols, count * cols),
                .pages = pages.from(first * heads),
                .cache = cache,
                .heads = heads,
                .rows = rows.subspan(first, count)};
    }
};

// The division of a row's work: for each kv head pieces of `ranges` ranges of the positions that are read as codes, of the
// window, and of the first tokens if they are kept in fp16. Each leaves partials: [ranges, then two of the window, then one of
// the first tokens][head].
struct RowPieces {
    uint32_t row, coded, ranges, first_piece, first_part;

    // Returns the first position of a range, which is the same whatever the other rows are.
    uint32_t bound(uint32_t range) const {
        return range == ranges ? coded : uint32_t(uint64_t(coded) * range / ranges) / kv_tile * kv_tile;
    }
};

// Divides the rows' work and counts the pieces and partials.
std::vector<RowPieces> divide(const Operands& of, uint32_t threads, uint32_t& pieces, uint32_t& parts) {
    constexpr uint32_t shortest = 256; // minimum positions of a piece
    const uint32_t kv_heads = of.cache.k.heads, window = of.cache.window ? 1 : 0, sink = of.cache.reads_sinks() ? 1 : 0;
    const uint32_t target = (4 * threads + kv_heads - 1) / kv_heads; // so that a slow thread takes few
    std::vector<RowPieces> all;
    for (uint32_t row = 0; row < of.rows.size(); row++) {
        const uint32_t coded = first_in_window(of.cache, of.rows[row]);
        all.push_back({row, coded, std::min(target, (coded + shortest - 1) / shortest), pieces, parts});
        pieces += kv_heads * (all.back().ranges + window + sink);
        parts += of.heads * (all.back().ranges + 2 * window + sink);
    }
    return all;
}

// Computes one piece of a row.
void attend_piece(const Operands& of, const RowPieces& row, uint32_t piece, std::span<Partial> parts, AttentionScratch& scratch) {
    const uint32_t kv_heads = of.cache.k.heads, group = of.heads / kv_heads, head = piece % kv_heads, range = piece / kv_heads;
    const size_t query = row.row * of.heads + head * group;
    const float* q = &of.q[query * of.cache.k.head_dim()];
    const QueryPages pages = of.pages.from(query);
    const auto of_head = [&](uint32_t i) { return parts.subspan(row.first_part + i * of.heads + head * group, group); };
    if (range < row.ranges) HWY_DYNAMIC_DISPATCH(attend_range)
    (in_pages(of.cache, of.rows[row.row]), q, pages, of_head(range),
     VectorRange{head, row.bound(range), row.bound(range + 1), row.bound(range), of.cache.left_out()}, scratch);
    else if (range == row.ranges && of.cache.window) HWY_DYNAMIC_DISPATCH(attend_window)(
        of.cache, of.rows[row.row], q, pages, of_head(range), of_head(range + 1), head, scratch);
    else attend_sink(of.cache, of.rows[row.row], q, pages, of_head(row.ranges + (of.cache.window ? 2 : 0)), head);
}

// Attends with each row as if it were alone; the pieces of all rows are one parallel loop.
void attend_rows(ThreadPool& pool, const Operands& of) {
    uint32_t pieces = 0, parts = 0;
    const std::vector<RowPieces> rows = divide(of, pool.threads(), pieces, parts);
    auto& storage = per_thread<std::vector<Partial>>();
    storage.resize(std::max<size_t>(storage.size(), parts));
    const std::span all(storage);
    each_piece(pool, pieces, [&](uint32_t i, AttentionScratch& scratch) {
        const RowPieces& row = *(std::ranges::upper_bound(rows, i, {}, &RowPieces::first_piece) - 1);
        attend_piece(of, row, i - row.first_piece, all, scratch);
    });
    const size_t d = of.cache.k.head_dim();
    pool.each(uint32_t(rows.size()) * of.heads, 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const RowPieces& row = rows[i / of.heads];
            const std::span y = of.y.subspan(i * d, d);
            combine(y, all.subspan(row.first_part + i % of.heads), of.heads,
                    row.ranges + (of.cache.window ? 2 : 0) + (of.cache.reads_sinks() ? 1 : 0));
            finish(y, of.cache.v.codec);
        }
    });
}

// Attends with a block of rows of each slot: a piece is some queries of a kv head.
void attend_blocks(ThreadPool& pool, std::span<const Operands> slots) {
    struct Piece {
        const Operands& of;
        Queries queries;
    };
    std::vector<Piece> pieces;
    const uint32_t step = query_tiles * uint32_t(HWY_DYNAMIC_DISPATCH(query_tile)());
    for (const Operands& of : slots) {
        const uint32_t kv_heads = of.cache.k.heads, queries = uint32_t(of.rows.size()) * (of.heads / kv_heads);
        for (uint32_t begin = 0; begin < queries; begin += step)
            for (uint32_t head = 0; head < kv_heads; head++)
                pieces.push_back({of,
                                  {.cache = of.cache,
                                   .q = of.q,
                                   .pages = of.pages,
                                   .rows = of.rows,
                                   .heads = of.heads,
                                   .head = head,
                                   .begin = begin,
                                   .end = std::min(queries, begin + step)}});
    }
    const auto length = [&](uint32_t i) { return pieces[i].queries.row(pieces[i].queries.end - 1).position; };
    std::vector<uint32_t> order(pieces.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater(), length); // the longest first
    each_piece(pool, uint32_t(pieces.size()), [&](uint32_t i, AttentionScratch& scratch) {
        const auto& [of, queries] = pieces[order[i]];
        HWY_DYNAMIC_DISPATCH(attend_block)(of.y, queries, scratch);
        for (uint32_t query = queries.begin; query < queries.end; query++)
            finish(of.y.subspan(queries.at(query), of.cache.k.head_dim()), of.cache.v.codec);
    });
}

} // namespace

void attention(ThreadPool& pool, std::span<float> y, std::span<const float> q, const PageScores& page_scores,
               const LayerCache& cache, uint32_t heads, std::span<const Row> rows, bool separate) {
    const Operands all{
        .y = y, .q = q, .pages = {page_scores.empty() ? nullptr : &page_scores}, .cache = cache, .heads = heads, .rows = rows};
    if (separate) return attend_rows(pool, all);
    std::vector<Operands> slots;
    for (const host::SlotRows& of : host::by_slot(rows)) slots.push_back(all.part(of.first, of.count()));
    attend_blocks(pool, slots);
}

} // namespace tq::cpu
#endif
