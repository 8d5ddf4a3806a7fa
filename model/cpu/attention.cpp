// Attention on compressed caches. A tile of keys or values is decoded once for all query heads of its kv head, and for a block
// of tokens; for one token, codes of few bits are multiplied without decoding. The softmax is online, tile by tile, within ranges
// of positions (attention.h), whose softmaxes are added up in order. So the bits of a token depend on nothing but its own
// position: not on the number of threads, and not on whether it is alone or in a block.
// Division of work. Rows: a piece is a kv head and some consecutive ranges (RowPieces), so that one token keeps all threads busy;
// the window and the first tokens are pieces of their own, because they are fp16. Each leaves partial softmaxes, and combine()
// adds them up. A block: a piece is some queries of a kv head over all their positions, and needs no partials. Pieces have
// different lengths, because a later query sees more, so a thread that has finished takes the next one, the longest first.
#include "model/cpu/attention.h"
#include "base/per_thread.h"
#include "model/cpu/kernels.h"
#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "model/cpu/attention_blocks-inl.h"
#include "model/cpu/attention_rows-inl.h"

#if HWY_ONCE
namespace tq::cpu {
namespace {

HWY_EXPORT(attend_ranges);
HWY_EXPORT(attend_window);
HWY_EXPORT(combine);
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

// The operands of attention.
struct Operands {
    std::span<float> y;
    std::span<const float> q; // [rows][heads][head_dim]
    QueryPages pages;
    const LayerCache& cache;
    uint32_t heads;
    std::span<const Row> rows;

    uint32_t group() const { return heads / cache.k.heads; }
    uint32_t queries() const { return uint32_t(rows.size()) * group(); } // of a kv head
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

// The division of a row's work: for each kv head `runs` pieces of consecutive ranges of the positions that are read as codes, one
// of the window, and one of the first tokens if they are kept in fp16. They leave partials: [one of the first tokens, then those
// of ranges, then one of the window][head].
struct RowPieces {
    const Operands* of;
    uint32_t row, coded, runs, first_piece, first_part;
    bool sink, window;

    uint32_t ranges() const { return coded == 0 ? 0 : range_of(coded - 1) + 1; }
    uint32_t pieces() const { return of->cache.k.heads * (runs + window + sink); }
    uint32_t parts() const { return sink + ranges() + window; } // of each head
    // Returns the first range of a run; runs have about as many positions each.
    uint32_t first_range(uint32_t run) const { return run == runs ? ranges() : range_of(uint32_t(uint64_t(coded) * run / runs)); }
};

// Divides the work of all rows.
std::vector<RowPieces> divide(std::span<const Operands> all, uint32_t threads) {
    std::vector<RowPieces> out;
    uint32_t pieces = 0, parts = 0;
    for (const Operands& of : all) {
        const uint32_t kv_heads = of.cache.k.heads;
        const uint32_t target = (4 * threads + kv_heads - 1) / kv_heads; // so that a slow thread takes few
        for (uint32_t row = 0; row < of.rows.size(); row++) {
            RowPieces one{.of = &of,
                          .row = row,
                          .coded = first_in_window(of.cache, of.rows[row]),
                          .first_piece = pieces,
                          .first_part = parts,
                          .sink = of.cache.reads_sinks(),
                          .window = bool(of.cache.window)};
            one.runs = std::min(target, one.ranges());
            pieces += one.pieces();
            parts += one.parts() * of.heads;
            out.push_back(one);
        }
    }
    return out;
}

// Computes one piece of a row.
void attend_piece(const RowPieces& row, uint32_t piece, std::span<Partial> parts, AttentionScratch& scratch) {
    const Operands& of = *row.of;
    const uint32_t kv_heads = of.cache.k.heads, group = of.group(), head = piece % kv_heads, run = piece / kv_heads;
    const size_t query = row.row * of.heads + head * group;
    const float* q = &of.q[query * of.cache.k.head_dim()];
    const QueryPages pages = of.pages.from(query);
    const auto from = [&](uint32_t part) { return parts.subspan(row.first_part + part * of.heads + head * group); };
    if (run < row.runs) {
        const Ranges ranges{head, row.first_range(run), row.first_range(run + 1), row.coded, of.cache.left_out()};
        if (ranges.begin == ranges.end) return;
        HWY_DYNAMIC_DISPATCH(attend_ranges)
        (in_pages(of.cache, of.rows[row.row]), q, pages, from(row.sink + ranges.begin), group, of.heads, ranges, scratch);
    } else if (run == row.runs && row.window) {
        HWY_DYNAMIC_DISPATCH(attend_window)
        (of.cache, of.rows[row.row], q, pages, from(row.parts() - 1).first(group), head, scratch);
    } else {
        attend_sink(of.cache, of.rows[row.row], q, pages, from(0).first(group), head);
    }
}

// Attends with each row by itself; the pieces of all rows are one parallel loop.
void attend_rows(ThreadPool& pool, std::span<const Operands> slots) {
    const std::vector<RowPieces> rows = divide(slots, pool.threads());
    const RowPieces& last = rows.back();
    const uint32_t heads = last.of->heads;
    auto& storage = per_thread<std::vector<Partial>>();
    storage.resize(std::max<size_t>(storage.size(), last.first_part + last.parts() * heads));
    const std::span all(storage);
    each_piece(pool, last.first_piece + last.pieces(), [&](uint32_t i, AttentionScratch& scratch) {
        const RowPieces& row = *(std::ranges::upper_bound(rows, i, {}, &RowPieces::first_piece) - 1);
        attend_piece(row, i - row.first_piece, all, scratch);
    });
    pool.each(uint32_t(rows.size()) * heads, 4, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const RowPieces& row = rows[i / heads];
            const size_t d = row.of->cache.k.head_dim();
            const std::span y = row.of->y.subspan((row.row * heads + i % heads) * d, d);
            HWY_DYNAMIC_DISPATCH(combine)(y.data(), &all[row.first_part + i % heads], heads, row.parts(), d);
            finish(y, row.of->cache.v.codec);
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
        for (uint32_t begin = 0; begin < of.queries(); begin += step)
            for (uint32_t head = 0; head < of.cache.k.heads; head++)
                pieces.push_back({of,
                                  {.cache = of.cache,
                                   .q = of.q,
                                   .pages = of.pages,
                                   .rows = of.rows,
                                   .heads = of.heads,
                                   .head = head,
                                   .begin = begin,
                                   .end = std::min(of.queries(), begin + step)}});
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

// Whether a block is the faster kernel for a slot's rows. It decodes a tile for all queries, where each row decodes it anew or
// multiplies its codes; but only kv heads divide its work among threads. Measured: docs/lab/cpu.md.
bool is_faster_in_block(const Operands& of, uint32_t threads) {
    const auto has_codes = [](const CacheSide& side) {
        return is_turboquant(side.codec.type) && code_bits(side.codec.type) <= 4;
    };
    const uint32_t min_rows = has_codes(of.cache.k) && has_codes(of.cache.v) ? 8 : std::max(2u, 8 / of.group());
    return of.rows.size() >= min_rows && 2 * of.cache.k.heads > threads;
}

} // namespace

void attention(ThreadPool& pool, std::span<float> y, std::span<const float> q, const PageScores& page_scores,
               const LayerCache& cache, uint32_t heads, std::span<const Row> rows, AttentionKernel kernel) {
    const Operands all{
        .y = y, .q = q, .pages = {page_scores.empty() ? nullptr : &page_scores}, .cache = cache, .heads = heads, .rows = rows};
    std::vector<Operands> alone, blocks;
    for (const host::SlotRows& of : host::by_slot(rows)) {
        const Operands slot = all.part(of.first, of.count());
        const bool in_block =
            kernel == AttentionKernel::blocks || (kernel == AttentionKernel::fastest && is_faster_in_block(slot, pool.threads()));
        (in_block ? blocks : alone).push_back(slot);
    }
    if (!alone.empty()) attend_rows(pool, alone);
    if (!blocks.empty()) attend_blocks(pool, blocks);
}

} // namespace tq::cpu
#endif
