// The full-precision window, and how it is written. A layer with a window has, for each slot, a ring of fp16 vectors: position p
// is at p modulo ring_tokens(), which is 16 more than a query attends to, so that tokens sampled ahead can be taken back. Every
// vector is also stored as codes; attention reads codes for tokens before the window and fp16 for those in it.
// - A pass of separate rows writes straight into the ring (WINDOW_RING): a row attends to the tokens before it, and its own
//   place in the ring is that of a token that no query of the pass needs.
// - A pass of a block may be longer than the ring, and its first rows still attend to tokens that its last rows replace. So its
//   vectors go into a block buffer first (WINDOW_BLOCK), attention reads ring and block, and keep_window() appends to the ring
//   afterwards. Rows that later rows of the same span replace are not written.
// A dense rotation takes the fourth binding of kv_append, so norm, RoPE and channel scaling of keys have a dispatch of their own
// then.
#include "model/gpu/kv_append.h"
#include "base/ensure.h"
#include "shaders.gen.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq::gpu {

uint32_t head_subgroup(const Tuning& t, uint32_t head_dim, uint32_t rotation, uint32_t half) {
    if (t.subgroup == 0 || rotation == ROTATION_HAAR) return 0;
    if (half == 0) half = head_dim / 2;
    // 64 channels per invocation do not stay in registers, and llvmpipe, with vectors of four, takes minutes to compile that.
    const uint32_t subgroup = std::min(std::bit_floor(t.subgroup), 1u << std::countr_zero(half));
    if (rotation == ROTATION_WHT_QUARTERS && subgroup < KV_QUARTERS) return 0;
    return head_dim / subgroup <= 32 ? subgroup : 0;
}

namespace {

float eps_or_none(std::optional<float> eps) { return eps.value_or(-1); } // as the kernels' parameters have it

void norm_rope(Pass& pass, const Buffer& q, const HeadNorm& norm, uint32_t heads, q_norm_rope_params params, uint32_t rotation,
               const CacheCodec& keys, uint32_t conditioned) {
    const Buffer& w = norm.weights;
    const uint64_t row = uint64_t(heads) * pass.head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * row * 8, s.tokens * row * 20}; });
    const uint32_t subgroup = head_subgroup(pass.tuning, pass.head_dim, rotation, pass.rotary() / 2);
    if (norm.kv_heads == 0) conditioned = CONDITION_NONE;
    const shader::q_norm_rope_constants constants{.workgroup = subgroup ? subgroup : pass.tuning.workgroup,
                                                  .head_dim = pass.head_dim,
                                                  .rotation = rotation,
                                                  .conditioned = conditioned,
                                                  .rotary = pass.rotary()};
    params = with_signs(params, keys.rotation);
    params.group = norm.kv_heads != 0 ? heads / norm.kv_heads : 1;
    ENSURE(!norm.has_means || conditioned != CONDITION_QUERIES || params.pages != 0, "no room for page scores");
    if (!norm.has_means) params.pages = 0;
    params.page_scale = 1 / std::sqrt(float(pass.head_dim));
    const Groups grid{heads, pass.tokens};
    if (subgroup)
        pass.recorder.dispatch<shader::q_norm_rope_subgroup>(grid, constants, params, work, q, w, pass.context);
    else
        pass.recorder.dispatch<shader::q_norm_rope>(grid, constants, params, work, q, w, pass.context, matrix_or(w, keys));
}

// One side of a slice, and the word at which it begins: separate views let keys and values run without a barrier. It is the whole
// slice if values do not begin at an offset that every device can bind.
struct SideOfSlice {
    View view;
    uint32_t begin = 0;

    SideOfSlice(const CacheSlice& slice, KvSide side) : view(slice.buffer) {
        const uint64_t keys = uint64_t(slice.layout.v_codes) * 4;
        if (keys % max_alignment != 0) return;
        if (side == KvSide::value) begin = slice.layout.v_codes;
        view = side == KvSide::key ? View(slice.buffer, 0, keys) : View(slice.buffer, keys, slice.buffer.bytes() - keys);
    }
};

// The source of kv_append for one side of a layer. `is_key`: k-norm by w, RoPE, the mean and channel scaling come first; else x
// is divided by w, if w has heads.
struct AppendSource {
    const CacheCodec& codec;
    const Buffer& x;
    const HeadNorm w;
    bool is_key;
    uint32_t kv_heads;
    float eps;
};

uint32_t append_subgroup(const Pass& pass, KvType type, uint32_t rotation) {
    const bool one_scale = is_turboquant(type) || !is_coded(type);
    return one_scale ? head_subgroup(pass.tuning, pass.head_dim, rotation, pass.rotary() / 2) : 0;
}

// The destination: its type, its kv heads, and one of WINDOW_*.
struct AppendTarget {
    View view;
    KvType type;
    uint32_t first_head, heads, capacity, codes, scales, sinks, window; // capacity: of the window
};

void append(Pass& pass, const AppendSource& from, const AppendTarget& to) {
    const uint32_t rotation = from.codec.rotation_constant();
    const uint32_t subgroup = append_subgroup(pass, to.type, rotation);
    const shader::kv_append_constants constants{.workgroup = subgroup ? subgroup : pass.tuning.workgroup,
                                                .head_dim = pass.head_dim,
                                                .type = uint32_t(to.type),
                                                .is_key = from.is_key,
                                                .rotation = rotation,
                                                .scale_rule = uint32_t(from.codec.scale_rule),
                                                .conditioned = from.w.kv_heads != 0,
                                                .window = to.window,
                                                .rotary = from.is_key ? pass.rotary() : pass.head_dim};
    const auto params = with_signs(kv_append_params{.heads = from.kv_heads,
                                                    .first_head = to.first_head,
                                                    .slice_heads = to.heads,
                                                    .capacity = to.capacity,
                                                    .codes = to.codes,
                                                    .scales = to.scales,
                                                    .sinks = to.sinks,
                                                    .eps = from.eps},
                                   from.codec.rotation);
    const uint64_t heads = to.heads, d = pass.head_dim, bytes = kv_vector_bytes(to.type, pass.head_dim);
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * heads * (d * 4 + bytes), s.tokens * heads * d * 30};
    });
    const bool scaled_values = !from.is_key && from.w.kv_heads != 0; // the matrix comes before their scales
    const Buffer& w = scaled_values ? from.w.weights : matrix_or(from.w.weights, from.codec);
    const auto dispatch = [&]<const auto & kernel>() {
        pass.recorder.dispatch<kernel>({to.heads, pass.tokens}, constants, params, work, to.view, from.x, w, pass.context);
    };
    if (is_trellis(to.type) && subgroup)
        dispatch.operator()<shader::kv_append_subgroup_trellis>();
    else if (is_trellis(to.type))
        dispatch.operator()<shader::kv_append_trellis>();
    else if (subgroup)
        dispatch.operator()<shader::kv_append_subgroup>();
    else
        dispatch.operator()<shader::kv_append>();
}

// Appends to the block or the ring of the window.
void append_window(Pass& pass, const AppendSource& from, const WindowVectors& window, uint32_t ring, KvSide side,
                   uint32_t where) {
    const uint64_t half = window.side_bytes();
    const View view(window.buffer, side == KvSide::key ? 0 : half, half);
    const uint32_t first = where == WINDOW_RING ? ring * code_words(KvType::f16, pass.head_dim) : 0;
    append(pass, from,
           {.view = view,
            .type = KvType::f16,
            .first_head = 0,
            .heads = from.kv_heads,
            .capacity = where == WINDOW_RING ? window.ring_tokens() : window.block_tokens,
            .codes = first,
            .scales = 0,
            .sinks = 0,
            .window = where});
}

void append(Pass& pass, const DeviceStorage& cache, uint32_t layer, KvSide side, const AppendSource& from) {
    const LayerCache& here = cache.layers[layer];
    for (const CacheSlice& slice : here.slices) {
        const SideOfSlice to(slice, side);
        append(pass, from,
               {.view = to.view,
                .type = from.codec.type,
                .first_head = slice.first_head,
                .heads = slice.heads,
                .capacity = 0,
                .codes = slice.layout.codes(side) - to.begin,
                .scales = slice.layout.scales(side) - to.begin,
                .sinks = here.sink_words() != 0 ? slice.layout.sinks(side) - to.begin : 0,
                .window = WINDOW_NONE});
    }
    const uint32_t where = pass.rows_are_separate() ? WINDOW_RING : WINDOW_BLOCK;
    if (here.ring) append_window(pass, from, *cache.window, *here.ring, side, where);
}

// Returns the source of keys; for a dense rotation norm, RoPE and channel scaling are already applied.
AppendSource keys_of(const CacheCodec& codec, const Buffer& k, const HeadNorm& w, uint32_t kv_heads, std::optional<float> eps) {
    const bool dense = codec.matrix.has_value();
    return {.codec = codec,
            .x = k,
            .w = dense ? HeadNorm{w.weights} : w,
            .is_key = !dense,
            .kv_heads = kv_heads,
            .eps = eps_or_none(eps)};
}

AppendSource values_of(const CacheCodec& codec, const Buffer& v, uint32_t kv_heads, const Buffer* scales) {
    return {.codec = codec,
            .x = v,
            .w = scales ? HeadNorm{*scales, kv_heads} : HeadNorm{v},
            .is_key = false,
            .kv_heads = kv_heads,
            .eps = 0};
}

} // namespace

std::vector<float> head_norm_floats(std::span<const float> weights, const HeadConditions& conditions) {
    const std::ptrdiff_t d = std::ssize(weights);
    std::vector<float> out(weights.begin(), weights.end());
    for (auto at = conditions.factors.begin(); at != conditions.factors.end(); at += d) {
        out.insert(out.end(), at, at + d);
        if (conditions.means.empty())
            out.insert(out.end(), size_t(d), 0.0f);
        else
            out.insert(out.end(), conditions.means.begin() + (at - conditions.factors.begin()),
                       conditions.means.begin() + (at - conditions.factors.begin()) + d);
    }
    return out;
}

std::vector<float> value_scale_floats(const KvCodec& values, std::span<const float> scales) {
    std::vector<float> out;
    if (values.rotation.matrix) out = *values.rotation.matrix;
    out.insert(out.end(), scales.begin(), scales.end());
    return out;
}

void q_norm_rope(Pass& pass, const Buffer& q, const PageScores& page_scores, const HeadNorm& w, uint32_t heads,
                 std::optional<float> eps, const CacheCodec& keys) {
    const uint32_t d = pass.head_dim, rotation = keys.rotation_constant();
    const float scale = 1 / std::sqrt(float(d)) / (rotation == ROTATION_NONE ? 1 : keys.rotation.gain());
    norm_rope(
        pass, q, w, heads,
        {.heads = heads, .eps = eps_or_none(eps), .scale = scale, .page_scores = page_scores.at, .pages = page_scores.pages},
        rotation, keys, CONDITION_QUERIES);
}

void k_append(Pass& pass, const DeviceStorage& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, uint32_t kv_heads,
              std::optional<float> eps) {
    const CacheCodec& codec = cache.layers[layer].k;
    const bool dense = codec.matrix.has_value(); // its binding is taken: the norm has a dispatch of its own
    if (dense)
        norm_rope(pass, k, w, kv_heads, {.heads = kv_heads, .eps = eps_or_none(eps), .scale = 1}, ROTATION_NONE, codec,
                  CONDITION_KEYS);
    append(pass, cache, layer, KvSide::key, keys_of(codec, k, w, kv_heads, eps));
}

void v_append(Pass& pass, const DeviceStorage& cache, uint32_t layer, const Buffer& v, uint32_t kv_heads,
              const Buffer* v_scales) {
    append(pass, cache, layer, KvSide::value, values_of(cache.layers[layer].v, v, kv_heads, v_scales));
}

void keep_window(Pass& pass, const DeviceStorage& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, const Buffer& v,
                 uint32_t kv_heads, std::optional<float> eps, const Buffer* v_scales) {
    const LayerCache& here = cache.layers[layer];
    if (!here.ring || pass.rows_are_separate()) return;
    append_window(pass, keys_of(here.k, k, w, kv_heads, eps), *cache.window, *here.ring, KvSide::key, WINDOW_RING);
    append_window(pass, values_of(here.v, v, kv_heads, v_scales), *cache.window, *here.ring, KvSide::value, WINDOW_RING);
}

void kv_decode(Pass& pass, const Buffer& x, const DeviceStorage& cache, uint32_t layer, KvSide side, uint32_t kv_heads) {
    const LayerCache& here = cache.layers[layer];
    const CacheCodec& codec = here.side(side);
    for (const CacheSlice& slice : here.slices) {
        const CacheLayout& at = slice.layout;
        const kv_decode_params params{.heads = kv_heads,
                                      .first_head = slice.first_head,
                                      .slice_heads = slice.heads,
                                      .codes = at.codes(side),
                                      .scales = at.scales(side)};
        const uint64_t vectors = uint64_t(slice.heads) * pass.tokens, d = pass.head_dim;
        const Work work{vectors * (d * 4 + kv_vector_bytes(codec.type, pass.head_dim)), vectors * d * 16};
        pass.recorder.dispatch<shader::kv_decode>({slice.heads, pass.tokens},
                                                  {.workgroup = pass.tuning.workgroup,
                                                   .head_dim = pass.head_dim,
                                                   .type = uint32_t(codec.type),
                                                   .rotation = codec.rotation_constant()},
                                                  with_signs(params, codec.rotation), work, x, slice.buffer,
                                                  matrix_or(pass.context, codec), pass.context);
    }
}

} // namespace tq::gpu
