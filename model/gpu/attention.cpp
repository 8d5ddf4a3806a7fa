// Attention of a pass is a few dispatches that leave partials, and one that combines them. A partial is a sum of values under a
// softmax of its own, with the greatest score and the sum of weights (shaders/attention.glsl), so that partials can be computed
// in any order and added up in a fixed one. A row has a partial of the codes for each split of the keys, one of its window's fp16
// vectors, and one of the sequence's first tokens; none of these waits for another. attention_combine rotates the result back.
// Which kernel reads the codes depends on the rows that share them. One row, and separate ones: attention_decode, if subgroups
// have lanes enough for a key, with as many splits as keep a device busy. A block: attention_coopmat, if there are matrix units
// and fp16 suffices for the types, else attention or attention_per_lane, each with as many rows per workgroup as stay in
// registers. Separate rows get the bits that each has alone, because each is a workgroup's only row, with splits by its own
// length.
#include "model/gpu/attention.h"
#include "base/ensure.h"
#include "model/gpu/attention_constants.h"
#include "model/gpu/kv_append.h"
#include "shaders.gen.h"
#include "shaders/level_table.h"
#include <algorithm>
#include <optional>

namespace tq::gpu {
namespace {

constexpr KvTypes window_types{KvType::f16, KvType::f16};

// The numbers of query heads and tokens that share a workgroup.
struct Tile {
    uint32_t heads, tokens;
};

// Returns the most rows of a workgroup whose sums stay in registers: on a GPU those of the tuning, or a group of Qwen3-14B's five
// query heads. attention_per_lane takes seconds to compile with more than five.
uint32_t max_rows_of(const Tuning& t) {
    if (t.attention_per_lane) return 5;
    return t.texel_buffers ? ~0u : std::max(t.attention_rows, 5u);
}

// Returns the entries of the tables of levels in shaders/kv_load.glsl.
uint32_t level_table_entries(KvTypes types) {
    const auto k = uint32_t(types.k), v = uint32_t(types.v);
    return std::max(1u, TABLE_LEVELS(k) + (k == v ? 0 : TABLE_LEVELS(v)));
}

Tile tile_of_vectors(const Tuning& t, const AttentionShape& shape) {
    const auto [head_dim, types, group, tokens] = shape;
    const uint32_t lanes = lanes_of(t, head_dim);
    // Bytes per row: queries, scores, and maximum and factor or the subgroups' maxima; shaders/attention.comp.
    const uint32_t row_bytes =
        head_dim * 4 + lanes * t.attention_keys * 4 + (t.subgroup ? std::max(lanes / t.subgroup, 1u) * 4 : 8);
    const uint32_t max_rows = max_rows_of(t);
    const uint32_t table_bytes = level_table_entries(types) * 4;
    Tile tile{group, tokens == 1 ? 1 : std::max(1u, std::min(t.attention_rows, max_rows) / group)};
    const auto fits = [&] {
        const uint32_t rows = tile.heads * tile.tokens;
        return rows <= max_rows && rows * row_bytes + table_bytes <= t.shared_bytes;
    };
    while (!fits()) {
        if (tile.tokens > 1) {
            tile.tokens--;
            continue;
        }
        ENSURE(tile.heads > 1, "{} bytes of shared memory", t.shared_bytes);
        do tile.heads--;
        while (group % tile.heads != 0);
    }
    return tile;
}

#if TQ_COOPERATIVE_MATRIX
bool one_scale_fp16(KvType type) { return type == KvType::f16 || is_turboquant(type); }

uint32_t strips_of(const Tuning& t, Tile tile) { return (tile.heads * tile.tokens + t.matrix.m - 1) / t.matrix.m; }

// shaders/attention_coopmat.comp
uint32_t shared_bytes_of_matrices(const Tuning& t, Tile tile, uint32_t keys, const AttentionShape& shape) {
    const uint32_t vectors = 2 * keys * (shape.head_dim / 4 + 2) * 8, row = (keys + 4) * 4 + (keys + 8) * 2 + 4,
                   scales = 2 * keys * 4, levels = level_table_entries(shape.types) * 4;
    return vectors + strips_of(t, tile) * t.matrix.m * row + scales + levels;
}

// Returns the plan of attention_coopmat, or nullopt if another kernel runs: for one token, whose few rows do not justify passing
// every value through shared memory; by the tuning; for types whose values are not fp16 numbers times one scale per vector or
// quarter; or for lack of shared memory.
std::optional<AttentionPlan> plan_of_matrices(const Tuning& t, const AttentionShape& shape) {
    const uint32_t sides = shape.head_dim > 128 ? 2 : 1, edge = std::max(t.matrix.n, t.matrix.k), min_keys = sides * edge;
    uint32_t rows = shape.tokens == 1 ? 0 : t.attention_coopmat_rows, keys = 2 * edge;
    if (rows == 0 || !one_scale_fp16(shape.types.k) || !one_scale_fp16(shape.types.v)) return std::nullopt;
    while (true) {
        uint32_t heads = std::min(shape.group, rows);
        while (shape.group % heads != 0) heads--;
        const Tile tile{heads, rows / heads};
        const uint32_t subgroups = strips_of(t, tile) * sides;
        const bool fits = subgroups * t.matrix_subgroup <= t.max_workgroup &&
                          keys * shape.head_dim / 32 % t.matrix_subgroup == 0 &&
                          shared_bytes_of_matrices(t, tile, keys, shape) <= t.shared_bytes;
        if (fits)
            return AttentionPlan{.kernel = AttentionKernel::coopmat,
                                 .heads = tile.heads,
                                 .tokens = tile.tokens,
                                 .split_step = keys,
                                 .subgroups = subgroups};
        if (rows > t.matrix.m)
            rows /= 2;
        else if (keys > min_keys)
            keys /= 2;
        else
            return std::nullopt;
    }
}
#endif

// Returns the bytes of shared memory that shaders/attention_decode.comp takes beside its tables of levels.
uint64_t shared_bytes_of_decode(const Tuning& t, const AttentionShape& shape, uint32_t heads, uint32_t batch) {
    const bool in_fp16 = KV_HALF_LEVELS(uint32_t(shape.types.k)) != 0; // the query
    const uint64_t weights = t.decode_subgroups * batch * heads, maxima_and_sums = (2 * t.decode_subgroups + 2) * heads,
                   joined = heads * shape.head_dim, query = in_fp16 ? joined / 2 + 4 : joined + 2,
                   single_levels = level_table_entries(shape.types);
    return 4 * (weights + maxima_and_sums + joined + query + single_levels);
}

// Returns the plan of attention_decode, or nullopt if another kernel runs: for several tokens; by the tuning; if a subgroup has
// too few invocations for a key; or if every query head would read the cache for itself.
std::optional<AttentionPlan> plan_of_decode(const Tuning& t, const AttentionShape& shape) {
    const auto k = uint32_t(shape.types.k), v = uint32_t(shape.types.v), sharers = shape.head_dim / 32; // invocations of a key
    if (shape.tokens != 1 || t.decode_subgroups == 0 || t.subgroup < sharers) return std::nullopt;
    const uint32_t batch = DECODE_STEPS * (t.subgroup / sharers),
                   entries = KV_LEVEL_TABLE_SIZE(k) + (k == v ? 0 : KV_LEVEL_TABLE_SIZE(v));
    const bool mixed = KV_HALF_LEVELS(k) != KV_HALF_LEVELS(v); // the registers of both ways to multiply
    for (uint32_t heads = std::min({shape.group, t.decode_heads, mixed ? 2 : shape.group}); heads > 0; heads--) {
        if (shape.group % heads != 0 || (heads == 1 && shape.group > 1)) continue;
        const uint64_t others = shared_bytes_of_decode(t, shape, heads, batch);
        for (uint32_t copies = std::min(t.subgroup, 32u); copies > 0; copies /= 2) // a bank for each at most
            if (others + 4 * std::max(entries * copies, 1u) <= t.shared_bytes)
                return AttentionPlan{.kernel = AttentionKernel::decode,
                                     .heads = heads,
                                     .tokens = 1,
                                     .split_step = batch * t.decode_subgroups,
                                     .copies = copies};
    }
    return std::nullopt;
}

// Returns the size in bytes of the partials of all heads, for one token.
uint64_t partials_bytes(uint32_t heads, uint32_t head_dim) { return (head_dim + 2) * 4ull * heads; }

// The partials of a pass over a layer.
struct Splits {
    uint32_t count, step;   // number of splits of the keys; their lengths are multiples of `step` tokens
    bool window, sinks;     // each token has one more partial, for its window; and one for its sequence's first tokens
    uint64_t window_at = 0; // offsets of these in `partials`
    uint64_t sinks_at = 0;
};

// Returns the size in bytes of the partials of all rows of a pass that are independent of the splits.
uint64_t more_partials_bytes(uint64_t all, bool window, bool sinks) {
    return (window ? all + max_alignment : 0) + (sinks ? all + max_alignment : 0);
}

// A block of many tokens has enough workgroups without splits; a short one has as many as `bytes` of partials hold.
Splits split_keys(const Pass& pass, uint64_t bytes, uint32_t heads, uint32_t step, const LayerCache& layer) {
    const uint64_t all = pass.kernel_rows() * partials_bytes(heads, pass.head_dim);
    Splits out{pass.tuning.splits, step, layer.ring.has_value(), layer.sink_words() != 0 && !layer.is_mtp};
    const uint64_t left = bytes - more_partials_bytes(all, out.window, out.sinks);
    if (!pass.rows_are_separate())
        out.count = pass.kernel_rows() > pass.tuning.short_block ? 1 : uint32_t(std::clamp<uint64_t>(left / all, 1, out.count));
    out.window_at = round_up(out.count * all, max_alignment);
    out.sinks_at = out.window ? round_up(out.window_at + all, max_alignment) : out.window_at;
    return out;
}

// Combines the partials of each head, rotates the result back and multiplies it by the scales of the values, if there are any.
void combine(Pass& pass, const Buffer& y, const View& partials, const CacheCodec& values, uint32_t heads, const Splits& splits,
             uint32_t group, const Buffer* v_scales) {
    const uint32_t count = splits.count, rotation = values.rotation_constant();
    const auto params = with_signs(attention_combine_params{.heads = heads,
                                                            .splits = count,
                                                            .split_step = splits.step,
                                                            .window_partials = uint32_t(splits.window_at / 4),
                                                            .sink_partials = uint32_t(splits.sinks_at / 4),
                                                            .group = group},
                                   values.rotation);
    const uint64_t row = uint64_t(heads) * pass.head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * row * 4 * (count + 1), s.tokens * row * (count * 4 + 14)};
    });
    const uint32_t subgroup = head_subgroup(pass.tuning, pass.head_dim, rotation);
    const shader::attention_combine_constants constants{.workgroup = subgroup ? subgroup : pass.tuning.workgroup,
                                                        .head_dim = pass.head_dim,
                                                        .rotation = rotation,
                                                        .window = splits.window,
                                                        .scaled = v_scales != nullptr,
                                                        .sinks = splits.sinks};
    const Groups grid{heads, pass.tokens};
    const Buffer& matrix = v_scales ? *v_scales : matrix_or(pass.context, values);
    if (subgroup)
        pass.recorder.dispatch<shader::attention_combine_subgroup>(grid, constants, params, work, y, partials, pass.context,
                                                                   matrix);
    else
        pass.recorder.dispatch<shader::attention_combine>(grid, constants, params, work, y, partials, pass.context, matrix);
}

static_assert(FIRST_TOKENS == 2, "attention_sink reads two tokens");
// Leaves the partials of the sequences' first tokens.
void attend_sinks(Pass& pass, const View& partials, const Buffer& q, const PageScores& page_scores, const LayerCache& layer,
                  uint32_t heads, uint32_t group) {
    const uint64_t d = pass.head_dim;
    for (const CacheSlice& slice : layer.slices) {
        const uint64_t row = uint64_t(slice.heads) * group * d;
        const Work work = per_step(pass.step, [=](const Step& s) {
            return Work{s.tokens * row * (8 + 4 * FIRST_TOKENS), s.tokens * row * 4 * FIRST_TOKENS};
        });
        pass.recorder.dispatch<shader::attention_sink>({slice.heads * group, pass.tokens},
                                                       {.workgroup = pass.tuning.workgroup, .head_dim = pass.head_dim},
                                                       attention_sink_params{.heads = heads,
                                                                             .first_head = slice.first_head,
                                                                             .slice_heads = slice.heads,
                                                                             .group = group,
                                                                             .k_sinks = slice.layout.k_sinks,
                                                                             .v_sinks = slice.layout.v_sinks,
                                                                             .page_scores = page_scores.at,
                                                                             .pages = page_scores.pages},
                                                       work, partials, q, slice.buffer, pass.context);
    }
}

Work work_of(const Pass& pass, uint32_t kv_heads, const AttendedKeys& what, uint64_t window_tokens) {
    const uint64_t d = pass.head_dim, all_heads = uint64_t(kv_heads) * what.group,
                   token_bytes =
                       kv_heads * (kv_vector_bytes(what.types.k, pass.head_dim) + kv_vector_bytes(what.types.v, pass.head_dim));
    const bool window_only = what.window == WINDOW_ONLY;
    return per_step(pass.step, [=](const Step& s) { // each token attends to half of its own block, on average
        const uint64_t seen = s.position + (s.tokens + 1) / 2, length = s.position + s.tokens;
        if (!window_only) return Work{length * token_bytes, 4 * s.tokens * seen * all_heads * d};
        return Work{std::min(length, window_tokens + s.tokens - 1) * token_bytes,
                    4 * s.tokens * std::min(seen, window_tokens) * all_heads * d};
    });
}

void attend(Pass& pass, const AttentionPlan& plan, const View& partials, const Buffer& q, const Buffer& cache, uint32_t kv_heads,
            const AttendedKeys& what, const attention_params& params) {
    const Tuning& t = pass.tuning;
    const uint32_t d = pass.head_dim;
    const Work work = work_of(pass, kv_heads, what, params.window_tokens);
    const uint32_t tiles = groups(pass.tokens, plan.tokens) + (plan.tokens == 1 ? 0 : pass.spans - 1); // some may end early
    const Groups grid{what.window == WINDOW_ONLY ? 1 : params.splits, kv_heads * (what.group / plan.heads), tiles};
    const auto dispatch = [&]<const auto & kernel>(const ConstantsOf<kernel>& constants) {
        pass.recorder.dispatch<kernel>(grid, constants, params, work, partials, q, cache, pass.context);
    };
#if TQ_COOPERATIVE_MATRIX
    if (plan.kernel == AttentionKernel::coopmat)
        return dispatch.operator()<shader::attention_coopmat>(attention_coopmat_constants(t, d, plan, what));
#endif
    if (plan.kernel == AttentionKernel::decode)
        return dispatch.operator()<shader::attention_decode>(attention_decode_constants(t, d, plan, what));
    const bool texel = reads_texels(pass, {q, cache});
    if (texel && plan.kernel == AttentionKernel::per_lane)
        return dispatch.operator()<shader::attention_per_lane>(attention_per_lane_constants(t, d, plan, what));
    const shader::attention_constants constants = attention_constants(t, d, plan, what);
    if (texel)
        dispatch.operator()<shader::attention_texel>(constants);
    else if (t.subgroup)
        dispatch.operator()<shader::attention_subgroup>(constants);
    else
        dispatch.operator()<shader::attention>(constants);
}

// A layer's attention in a pass: the dispatches that leave its partials.
struct LayerAttention {
    Pass& pass;
    const View& partials;
    const Buffer& q;
    const PageScores& page_scores;
    const LayerCache& here;
    const Splits& splits;
    uint32_t heads, kv_heads, group;

    View part(uint64_t begin, uint64_t end) const { return View(*partials.buffer, partials.offset + begin, end - begin); }
    // The first key that is read here: attend_sinks() reads those before, or, in a head for drafts, nobody.
    uint32_t first_key() const { return splits.sinks ? FIRST_TOKENS : here.is_mtp ? 1 : 0; }

    void attend_codes(const AttentionPlan& plan, uint32_t window_tokens) const {
        const AttendedKeys what{here.types(), heads, group, here.ring ? WINDOW_EXCLUDED : WINDOW_NONE};
        const View to = splits.window || splits.sinks ? part(0, splits.window_at) : partials;
        for (const CacheSlice& slice : here.slices) {
            const CacheLayout& at = slice.layout;
            attend(pass, plan, to, q, slice.buffer, slice.heads, what,
                   {.heads = heads,
                    .first_head = slice.first_head,
                    .slice_heads = slice.heads,
                    .splits = splits.count,
                    .k_codes = at.k_codes,
                    .k_scales = at.k_scales,
                    .v_codes = at.v_codes,
                    .v_scales = at.v_scales,
                    .window_tokens = window_tokens,
                    .ring_tokens = 1,
                    .split_step = splits.step,
                    .sinks = first_key(),
                    .page_scores = page_scores.at,
                    .pages = page_scores.pages});
        }
    }

    void attend_window(const WindowVectors& window, const AttentionPlan& plan) const {
        attend(pass, plan, part(splits.window_at, splits.sinks_at), q, window.buffer, kv_heads,
               {window_types, heads, group, WINDOW_ONLY},
               {.heads = heads,
                .slice_heads = kv_heads,
                .splits = splits.count,
                .v_codes = uint32_t(window.side_bytes() / 4),
                .window_tokens = window.tokens,
                .ring = *here.ring,
                .ring_tokens = window.ring_tokens(),
                .block_tokens = pass.rows_are_separate() ? 0 : window.block_tokens,
                .split_step = splits.step,
                .sinks = first_key(),
                .page_scores = page_scores.at,
                .pages = page_scores.pages});
    }
};

} // namespace

AttentionPlan attention_plan(const Tuning& t, const AttentionShape& shape) {
#if TQ_COOPERATIVE_MATRIX
    if (const auto plan = plan_of_matrices(t, shape)) return *plan;
#endif
    if (const auto plan = plan_of_decode(t, shape)) return *plan;
    const Tile tile = tile_of_vectors(t, shape);
    const uint32_t lanes = lanes_of(t, shape.head_dim);
    return {.kernel = t.attention_per_lane ? AttentionKernel::per_lane : AttentionKernel::vectors,
            .heads = tile.heads,
            .tokens = tile.tokens,
            .split_step = t.attention_per_lane ? lanes : lanes * t.attention_keys};
}

void attention(Pass& pass, const Buffer& y, View partials, const Buffer& q, const PageScores& page_scores,
               const DeviceStorage& cache, uint32_t layer, uint32_t heads, uint32_t kv_heads, const Buffer* v_scales) {
    const LayerCache& here = cache.layers[layer];
    const uint32_t group = heads / kv_heads, block = pass.rows_are_separate() ? 1 : pass.kernel_rows();
    const AttentionPlan plan = attention_plan(pass.tuning, {pass.head_dim, here.types(), group, block});
    const Splits splits = split_keys(pass, partials.bytes, heads, plan.split_step, here);
    const LayerAttention of{.pass = pass,
                            .partials = partials,
                            .q = q,
                            .page_scores = page_scores,
                            .here = here,
                            .splits = splits,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .group = group};
    of.attend_codes(plan, here.ring ? cache.window->tokens : 0);
    if (here.ring) of.attend_window(*cache.window, attention_plan(pass.tuning, {pass.head_dim, window_types, group, block}));
    if (splits.sinks) attend_sinks(pass, of.part(splits.sinks_at, partials.bytes), q, page_scores, here, heads, group);
    combine(pass, y, partials, here.v, heads, splits, group, v_scales);
}

uint64_t partials_bytes(const Tuning& tuning, uint32_t tokens, uint32_t separate, uint32_t heads, uint32_t head_dim, bool window,
                        bool sinks) {
    const auto of = [&](uint32_t count, uint32_t splits) {
        const uint64_t all = count * partials_bytes(heads, head_dim);
        return splits * all + more_partials_bytes(all, window, sinks);
    };
    return std::max(of(separate, tuning.splits), of(tokens, 1));
}

} // namespace tq::gpu
