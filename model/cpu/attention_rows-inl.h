// Attention with one row, for one target: a tile of keys or values is decoded once for the query heads of its kv head, or codes
// of few bits are multiplied without decoding. The operations on a query's numbers, and their order, are those of
// attention_blocks-inl.h, so that a row has equal bits alone and in a block.
#if defined(TQ_CPU_ATTENTION_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_ATTENTION_ROWS_INL_H
#undef TQ_CPU_ATTENTION_ROWS_INL_H
#else
#define TQ_CPU_ATTENTION_ROWS_INL_H
#endif

#include "model/cpu/attention.h"
#include "model/cpu/code_products-inl.h"
#include "model/cpu/elementwise-inl.h"
#include "model/cpu/lane_sums-inl.h"
#include "model/cpu/stored_vectors-inl.h"
#include <optional>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// weights[kv_tile] = exp(scores - largest); returns their sum.
inline float exp_all(float* HWY_RESTRICT weights, float largest) {
    V total = hn::Zero(F());
    for (size_t i = 0; i < kv_tile; i += lanes) {
        const V weight = exp_of(hn::Sub(hn::LoadU(F(), weights + i), hn::Set(F(), largest)));
        hn::StoreU(weight, F(), weights + i);
        total = hn::Add(total, weight);
    }
    return sum_in_order(total);
}

// scores[head][p] = q[head] . k[p] for positions begin .. end - 1 of a tile, and some around them; rows of scores are kv_tile
// long.
template <size_t heads> void score_tile(float* HWY_RESTRICT scores, const float* HWY_RESTRICT q, const float* HWY_RESTRICT k,
                                        size_t begin, size_t end, size_t d) {
    for (size_t p = begin / lanes * lanes; p < end; p += lanes) {
        V partial[heads][lane_blocks];
        for (size_t block = 0; block < lane_blocks; block++) { // few_lanes positions share the loads of q
            const float* const keys = k + (p + block * few_lanes) * d;
            V sums[heads][few_lanes];
            HWY_UNROLL(8)
            for (size_t i = 0; i < heads * few_lanes; i++) sums[i / few_lanes][i % few_lanes] = hn::Zero(F());
            for (size_t c = 0; c < d; c += lanes) {
                V key[few_lanes];
                HWY_UNROLL(4)
                for (size_t i = 0; i < few_lanes; i++) key[i] = hn::LoadU(F(), keys + i * d + c);
                HWY_UNROLL(2)
                for (size_t h = 0; h < heads; h++) {
                    const V query = hn::LoadU(F(), q + h * d + c);
                    HWY_UNROLL(4)
                    for (size_t i = 0; i < few_lanes; i++) sums[h][i] = hn::MulAdd(query, key[i], sums[h][i]);
                }
            }
            HWY_UNROLL(2)
            for (size_t h = 0; h < heads; h++) partial[h][block] = sums_of_blocks(sums[h]);
        }
        HWY_UNROLL(2)
        for (size_t h = 0; h < heads; h++) hn::StoreU(sum_blocks(partial[h]), F(), scores + h * kv_tile + p);
    }
}

// y[head][c] += sum of weights[head][p] * v[p][c] for positions begin .. end - 1, for the two heads or the one whose sums are
// `y`.
template <size_t heads> void add_weighted(float* const* y, const float* HWY_RESTRICT weights, const float* HWY_RESTRICT v,
                                          size_t begin, size_t end, size_t d) {
    constexpr size_t step = 4; // vectors of channels that share the loads of the weights
    for (size_t c = 0; c < d; c += step * lanes) {
        V sums[heads][step];
        HWY_UNROLL(8)
        for (size_t i = 0; i < heads * step; i++) sums[i / step][i % step] = hn::LoadU(F(), y[i / step] + c + i % step * lanes);
        const float* from = v + begin * d + c;
        for (size_t p = begin; p < end; p++, from += d) {
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

HWY_INLINE float exp_of(float x) { return hn::GetLane(exp_of(hn::Set(F(), x))); }
HWY_INLINE float multiply_add(float a, float b, float c) {
    return hn::GetLane(hn::MulAdd(hn::Set(F(), a), hn::Set(F(), b), hn::Set(F(), c)));
}

// Turns the scores of positions begin .. end - 1 of a tile into weights, and all others into 0; earlier sums are rescaled if
// there is a larger score.
inline void update(Partial& part, float* scores, size_t begin, size_t end, size_t d) {
    std::fill(scores, scores + begin, -std::numeric_limits<float>::infinity());
    std::fill(scores + end, scores + kv_tile, -std::numeric_limits<float>::infinity());
    V tops = hn::Set(F(), part.largest);
    for (size_t p = 0; p < kv_tile; p += lanes) tops = hn::Max(tops, hn::LoadU(F(), scores + p));
    const float largest = hn::GetLane(hn::MaxOfLanes(F(), tops)), total = exp_all(scores, largest);
    float keep = 1;
    if (largest != part.largest) {
        keep = exp_of(part.largest - largest);
        scale_all(part.sums.data(), keep, d);
        part.largest = largest;
    }
    part.total = multiply_add(part.total, keep, total);
}

// Adds the softmax over other positions.
inline void add_partial(Partial& to, const Partial& part, size_t d) {
    const float largest = std::max(to.largest, part.largest), keep = exp_of(to.largest - largest),
                weight = exp_of(part.largest - largest);
    for (size_t c = 0; c < d; c += lanes) {
        const V sum = hn::Mul(hn::LoadU(F(), &part.sums[c]), hn::Set(F(), weight));
        hn::StoreU(hn::MulAdd(hn::LoadU(F(), &to.sums[c]), hn::Set(F(), keep), sum), F(), &to.sums[c]);
    }
    to.total = multiply_add(to.total, keep, part.total * weight);
    to.largest = largest;
}

// Scores the decoded keys of a tile for a group of heads.
inline void score_decoded(float* scores, const float* q, const float* keys, size_t begin, size_t end, size_t heads, size_t d) {
    for (size_t g = 0; g < heads; g += 2)
        (g + 1 < heads ? score_tile<2> : score_tile<1>)(&scores[g * kv_tile], q + g * d, keys, begin, end, d);
}

// Adds the weighted decoded values of a tile to parts[group].
inline void add_decoded(std::span<Partial> parts, const float* weights, const float* values, size_t begin, size_t end, size_t d) {
    const size_t heads = parts.size();
    for (size_t g = 0; g < heads; g += 2) {
        float* const y[] = {parts[g].sums.data(), parts[std::min(g + 1, heads - 1)].sums.data()};
        (g + 1 < heads ? add_weighted<2> : add_weighted<1>)(y, &weights[g * kv_tile], values, begin, end, d);
    }
}

// Attends to tiles of keys and values for one row's query heads of a kv head.
class RowAttention {
  public:
    // q[heads][head_dim]
    RowAttention(const StoredVectors& from, uint32_t head, const float* q, const QueryPages& pages, size_t heads,
                 uint32_t left_out, AttentionScratch& scratch)
        : from_(from), head_(head), left_out_(left_out), q_(q), pages_(pages), d_(from.k.head_dim()),
          vectors_(scratch.vectors.first(kv_tile * d_).data()), scores_(scratch.scores.first(heads * kv_tile).data()) {
        if (multiplies_codes(from.k.codec)) code_scores_.emplace(from.k, q, heads, scratch.tiles.first(heads * d_).data());
        if (multiplies_codes(from.v.codec)) code_sums_.emplace(from.v);
    }

    // parts[heads] get the softmax over positions begin .. end - 1; those up to `last` come next.
    void attend(std::span<Partial> parts, uint32_t begin, uint32_t end, uint32_t last) {
        for (Partial& part : parts) part.reset(d_);
        for (uint32_t first = begin, after; first < end; first = after) {
            const StoredTile tile = from_.tile(head_, first, end);
            after = first + tile.count;
            if (after > left_out_) add_tile(parts, tile, first, last);
        }
        if (code_sums_) code_sums_->in_order(parts);
    }

  private:
    void add_tile(std::span<Partial> parts, const StoredTile& tile, uint32_t first, uint32_t last) {
        const uint32_t begin = first % kv_tile, end = begin + tile.count, visible = begin + std::max(first, left_out_) - first,
                       after = first + tile.count;
        const auto tile_at = [&](uint32_t position) { return from_.tile(head_, position, last); };
        // Tiles that are prefetched while keys, and while values are read. Codes that are multiplied as they are need two tiles
        // ahead: a prefetch of one tile would come too late. Decoding is slower, and needs one.
        const bool is_far = code_scores_ && code_sums_ && after + kv_tile < last;
        const StoredTile next = tile_at(is_far ? after + kv_tile : after < last ? after : first);
        const NextTile then_keys(is_far ? from_.k : from_.v, is_far ? next : tile), then_values(is_far ? from_.v : from_.k, next);
        const size_t heads = parts.size();
        if (code_scores_) {
            code_scores_->score(scores_, tile, then_keys);
        } else {
            load_vectors(vectors_ + begin * d_, from_.k, tile, then_keys);
            score_decoded(scores_, q_, vectors_, begin, end, heads, d_);
        }
        for (size_t g = 0; g < heads; g++) {
            float* const of_head = scores_ + g * kv_tile;
            const float added = pages_.at(g, first); // a tile is in one page
            for (uint32_t p = visible; pages_ && p < end; p++) of_head[p] += added;
            update(parts[g], of_head, visible, end, d_);
        }
        if (code_sums_) {
            code_sums_->add(parts, scores_, tile, then_values);
        } else {
            load_vectors(vectors_ + begin * d_, from_.v, tile, then_values);
            add_decoded(parts, scores_, vectors_, begin, end, d_);
        }
    }

    const StoredVectors& from_;
    const uint32_t head_, left_out_;
    const float* const q_;
    const QueryPages pages_;
    const size_t d_;
    float *const vectors_, *const scores_;
    std::optional<const CodeScores> code_scores_;
    std::optional<const CodeSums> code_sums_;
};

// Attends to consecutive ranges in pages for one row's query heads of a kv head: parts[range - of.begin][heads_of_row], of which
// the first `heads` are used.
inline void attend_ranges(const StoredVectors& from, const float* q, const QueryPages& pages, std::span<Partial> parts,
                          size_t heads, size_t heads_of_row, const Ranges& of, AttentionScratch& scratch) {
    RowAttention row(from, of.head, q, pages, heads, of.left_out, scratch);
    const auto bound = [&](uint32_t range) { return std::min(range_begin(range), of.positions); };
    for (uint32_t range = of.begin; range < of.end; range++)
        row.attend(parts.subspan((range - of.begin) * heads_of_row, heads), bound(range), bound(range + 1), bound(of.end));
}

// Attends to the window of a row.
inline void attend_window(const LayerCache& cache, const Row& row, const float* q, const QueryPages& pages,
                          std::span<Partial> parts, uint32_t head, AttentionScratch& scratch) {
    const StoredVectors window = in_window(cache, row);
    const size_t d = window.k.head_dim();
    const std::span<float> scaled = scratch.tiles.first(parts.size() * d);
    for (size_t i = 0; i < scaled.size(); i++) scaled[i] = q[i] / window_unit;
    const uint32_t end = row.position + 1, first = std::min(std::max(first_in_window(cache, row), cache.left_out()), end);
    RowAttention(window, head, scaled.data(), pages, parts.size(), 0, scratch).attend(parts, first, end, end);
    for (Partial& part : parts) scale_all(part.sums.data(), 1 / window_unit, d);
}

// y[d] = the attention of one query head, of whose partials every `stride`-th of parts is one; they are added in their order.
inline void combine(float* y, const Partial* parts, size_t stride, size_t count, size_t d) {
    Partial all;
    all.reset(d);
    for (size_t i = 0; i < count; i++) add_partial(all, parts[i * stride], d);
    for (size_t c = 0; c < d; c++) y[c] = all.sums[c] / all.total;
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
