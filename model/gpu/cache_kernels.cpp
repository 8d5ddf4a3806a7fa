// The kernels that work on head vectors and on the cache.
#include "model/gpu/constants.h"
#include "model/gpu/recording.h"
#include <algorithm>
#include <cmath>

namespace tq::gpu {
namespace {

template <class Params> Params with_signs(Params params, const Rotation& rotation) {
    std::ranges::copy(rotation.signs, params.signs);
    std::ranges::copy(rotation.projection, params.projection);
    return params;
}

// The matrix of a dense rotation; otherwise `unused`, for a binding is never empty.
const Buffer& matrix_or(const Buffer& unused, const CacheCodec& codec) { return codec.matrix ? *codec.matrix : unused; }

void norm_rope(Pass& pass, const Buffer& q, const HeadNorm& norm, uint32_t heads, q_norm_rope_params params, uint32_t rotation,
               const CacheCodec& keys, bool projected) {
    const Buffer& w = norm.weights;
    const uint64_t row = uint64_t(heads) * pass.head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * row * 8, s.tokens * row * 20}; });
    const uint32_t subgroup = head_subgroup(pass.tuning, pass.head_dim, rotation);
    const bool conditioned = norm.kv_heads != 0;
    const auto constants = q_norm_rope_constants(pass.tuning, subgroup, pass.head_dim, rotation, projected, conditioned);
    params = with_signs(params, keys.rotation);
    params.group = conditioned ? heads / norm.kv_heads : 1;
    const Groups grid{heads, pass.tokens};
    if (subgroup)
        pass.recorder.dispatch<shader::q_norm_rope_subgroup>(grid, constants, params, work, q, w, pass.context);
    else
        pass.recorder.dispatch<shader::q_norm_rope>(grid, constants, params, work, q, w, pass.context, matrix_or(w, keys));
}

constexpr uint32_t most_alignment = 256; // that Vulkan lets a device ask of a binding

// One side of a slice, and the word at which it begins: keys and values need not wait for each other. The whole slice where
// values do not begin at what every device can bind.
struct SideOfSlice {
    View view;
    uint32_t begin = 0;

    SideOfSlice(const CacheSlice& slice, KvSide side) : view(slice.buffer) {
        const uint64_t keys = uint64_t(slice.layout.v_codes) * 4;
        if (keys % most_alignment != 0) return;
        if (side == KvSide::value) begin = slice.layout.v_codes;
        view = side == KvSide::key ? View(slice.buffer, 0, keys) : View(slice.buffer, keys, slice.buffer.bytes() - keys);
    }
};

// What kv_append takes of a side of a layer: `is_key`: k-norm by w, RoPE and conditions come first.
struct Appended {
    const CacheCodec& codec;
    const Buffer& x;
    const HeadNorm& w;
    bool is_key;
    uint32_t kv_heads;
    float eps;
};

// Where it goes: as what type, into which kv heads, and which RECENT_* that is.
struct AppendTo {
    View view;
    KvType type;
    uint32_t first_head, heads, capacity, codes, scales, recent;
};

void append(Pass& pass, const Appended& from, const AppendTo& to) {
    const uint32_t rotation = from.codec.rotation_constant();
    const uint32_t subgroup = append_subgroup(pass.tuning, pass.head_dim, to.type, rotation);
    const auto constants = kv_append_constants(pass.tuning, subgroup, pass.head_dim, to.type, from.is_key, rotation,
                                               from.codec.scale_rule, from.is_key && from.w.kv_heads != 0, to.recent);
    const auto params = with_signs(
        kv_append_params{from.kv_heads, to.first_head, to.capacity, to.codes, to.scales, from.eps, {}, {}}, from.codec.rotation);
    const uint64_t heads = to.heads, d = pass.head_dim, bytes = kv_vector_bytes(to.type, pass.head_dim);
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * heads * (d * 4 + bytes), s.tokens * heads * d * 30};
    });
    const auto dispatch = [&]<const auto & kernel>() {
        pass.recorder.dispatch<kernel>({to.heads, pass.tokens}, constants, params, work, to.view, from.x,
                                       matrix_or(from.w.weights, from.codec), pass.context);
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

// Into the block or the ring of recent tokens.
void append_recent(Pass& pass, const Appended& from, const RecentVectors& recent, uint32_t ring, KvSide side, uint32_t where) {
    const uint64_t half = recent.side_bytes();
    const View view(recent.buffer, side == KvSide::key ? 0 : half, half);
    const uint32_t first = where == RECENT_RING ? ring * code_words(KvType::f16, pass.head_dim) : 0;
    append(pass, from,
           {view, KvType::f16, 0, from.kv_heads, where == RECENT_RING ? recent.ring_tokens() : recent.block_tokens, first, 0,
            where});
}

void append(Pass& pass, const KvCache& cache, uint32_t layer, KvSide side, const Appended& from) {
    const LayerCache& here = cache.layers[layer];
    for (const CacheSlice& slice : here.slices) {
        const SideOfSlice to(slice, side);
        append(pass, from,
               {to.view, from.codec.type, slice.first_head, slice.heads, here.capacity, slice.layout.codes(side) - to.begin,
                slice.layout.scales(side) - to.begin, RECENT_NONE});
    }
    if (here.ring) append_recent(pass, from, *cache.recent, *here.ring, side, pass.tokens == 1 ? RECENT_RING : RECENT_BLOCK);
}

// Keys for a dense rotation come normed and turned.
Appended keys_of(const CacheCodec& codec, const Buffer& k, const HeadNorm& w, uint32_t kv_heads, float eps) {
    return {codec, k, w, !codec.matrix.has_value(), kv_heads, eps};
}

// A part of every head, of one token.
uint64_t parts_bytes(uint32_t heads, uint32_t head_dim, bool projected) {
    return ((projected ? 2 : 1) * head_dim + 2) * 4ull * heads;
}

// The parts in `partials` of a pass over a layer.
struct Parts {
    uint32_t splits, step;  // that the keys are cut into, multiples of `step` tokens
    bool recent;            // one more of each token, of the recent ones, which needs not wait for the others;
    uint64_t recent_at = 0; // where in `partials` these begin
};

// A block of many tokens has workgroups enough, and no splits; a short one has as many as `bytes` of partials hold.
Parts cut_into_parts(const Pass& pass, uint64_t bytes, KvTypes types, uint32_t heads, uint32_t group, bool recent) {
    const uint64_t all = pass.tokens * parts_bytes(heads, pass.head_dim, is_qjl(types.v)),
                   left = bytes - (recent ? all + most_alignment : 0);
    Parts out{pass.tuning.splits, attention_part_step(pass.tuning, pass.head_dim, types, group, pass.tokens), recent};
    if (pass.tokens > 1)
        out.splits = pass.tokens > pass.tuning.short_block ? 1 : uint32_t(std::clamp<uint64_t>(left / all, 1, out.splits));
    if (recent) out.recent_at = round_up(out.splits * all, most_alignment);
    return out;
}

// The parts of each head, put together and turned back.
void merge(Pass& pass, const Buffer& y, const View& partials, const CacheCodec& values, uint32_t heads, const Parts& parts) {
    const uint32_t splits = parts.splits, rotation = values.rotation_constant();
    const auto params = with_signs(
        attention_merge_params{
            heads, splits, parts.step, QJL_FACTOR / float(pass.head_dim), uint32_t(parts.recent_at / 4), {}, {}},
        values.rotation);
    const uint64_t row = uint64_t(heads) * pass.head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * row * 4 * (splits + 1), s.tokens * row * (splits * 4 + 14)};
    });
    const uint32_t subgroup = head_subgroup(pass.tuning, pass.head_dim, rotation);
    const auto constants =
        attention_merge_constants(pass.tuning, subgroup, pass.head_dim, rotation, is_qjl(values.type), parts.recent);
    const Groups grid{heads, pass.tokens};
    if (subgroup)
        pass.recorder.dispatch<shader::attention_merge_subgroup>(grid, constants, params, work, y, partials, pass.context);
    else
        pass.recorder.dispatch<shader::attention_merge>(grid, constants, params, work, y, partials, pass.context,
                                                        matrix_or(*partials.buffer, values));
}

// What a dispatch of attention reads, and how: one of RECENT_*.
struct Attended {
    KvTypes types;
    uint32_t heads, group, recent;
};

void attend(Pass& pass, const View& partials, const Buffer& q, const Buffer& cache, uint32_t kv_heads, const Attended& what,
            const attention_params& params) {
    const uint64_t d = pass.head_dim, all_heads = uint64_t(kv_heads) * what.group, window = params.window,
                   token_bytes =
                       kv_heads * (kv_vector_bytes(what.types.k, pass.head_dim) + kv_vector_bytes(what.types.v, pass.head_dim));
    const bool is_recent = what.recent == RECENT_ALONE;
    const Work work = per_step(pass.step, [=](const Step& s) { // each token sees half of its own block, on average
        const uint64_t seen = s.position + (s.tokens + 1) / 2, length = s.position + s.tokens;
        if (!is_recent) return Work{length * token_bytes, 4 * s.tokens * seen * all_heads * d};
        return Work{std::min(length, window + s.tokens - 1) * token_bytes, 4 * s.tokens * std::min(seen, window) * all_heads * d};
    });
    const auto grid_of = [&](uint32_t tile_heads, uint32_t tile_tokens) {
        return Groups{is_recent ? 1 : params.splits, kv_heads * (what.group / tile_heads), groups(pass.tokens, tile_tokens)};
    };
#if TQ_COOPERATIVE_MATRIX
    if (const auto matrices = coopmat_attention(pass.tuning, pass.head_dim, what.types, what.group, pass.tokens)) {
        pass.recorder.dispatch<shader::attention_coopmat>(
            grid_of(matrices->heads, matrices->tokens),
            attention_coopmat_constants(pass.tuning, *matrices, pass.head_dim, what.types, what.group, what.recent), params, work,
            partials, q, cache, pass.context);
        return;
    }
#endif
    const AttentionTile tile = attention_tile(pass.tuning, pass.head_dim, what.types, what.group, pass.tokens);
    const Groups grid = grid_of(tile.heads, tile.tokens);
    const auto constants = attention_constants(pass.tuning, pass.head_dim, what.types, what.group, pass.tokens, what.recent);
    const bool simd = uses_simd(pass, {q, cache});
    if (simd && is_per_lane(pass.tuning, what.types))
        pass.recorder.dispatch<shader::attention_per_lane>(
            grid, attention_per_lane_constants(pass.tuning, pass.head_dim, what.types, what.group, pass.tokens, what.recent),
            params, work, partials, q, cache, pass.context);
    else if (simd)
        pass.recorder.dispatch<shader::attention_simd>(grid, constants, params, work, partials, q, cache, pass.context);
    else if (pass.tuning.subgroup)
        pass.recorder.dispatch<shader::attention_subgroup>(grid, constants, params, work, partials, q, cache, pass.context);
    else
        pass.recorder.dispatch<shader::attention>(grid, constants, params, work, partials, q, cache, pass.context);
}

} // namespace

std::vector<float> head_norm_floats(std::span<const float> weights, const HeadConditions& conditions) {
    const std::ptrdiff_t d = std::ssize(weights);
    std::vector<float> out(weights.begin(), weights.end());
    for (auto at = conditions.factors.begin(), mean = conditions.means.begin(); at != conditions.factors.end();
         at += d, mean += d) {
        out.insert(out.end(), at, at + d);
        out.insert(out.end(), mean, mean + d);
    }
    return out;
}

void q_norm_rope(Pass& pass, const Buffer& q, const HeadNorm& w, uint32_t heads, float eps, const CacheCodec& keys) {
    const uint32_t d = pass.head_dim, rotation = keys.rotation_constant();
    const float scale = 1 / std::sqrt(float(d)) / (rotation == ROTATION_NONE ? 1 : keys.rotation.gain());
    norm_rope(pass, q, w, heads, {heads, eps, scale, pass.tokens * heads * d, scale * QJL_FACTOR / float(d), 1, {}, {}}, rotation,
              keys, is_qjl(keys.type));
}

uint64_t q_floats(uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected) {
    return uint64_t(tokens) * heads * head_dim * (projected ? 2 : 1);
}

void k_append(Pass& pass, const KvCache& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, uint32_t kv_heads,
              float eps) {
    const CacheCodec& codec = cache.layers[layer].k;
    const bool dense = codec.matrix.has_value(); // its binding is taken: the norm comes by itself
    if (dense) norm_rope(pass, k, w, kv_heads, {kv_heads, eps, 1, 0, 0, 1, {}, {}}, ROTATION_NONE, codec, false);
    append(pass, cache, layer, KvSide::key, keys_of(codec, k, w, kv_heads, eps));
}

void v_append(Pass& pass, const KvCache& cache, uint32_t layer, const Buffer& v, uint32_t kv_heads) {
    const HeadNorm none{v};
    append(pass, cache, layer, KvSide::value, {cache.layers[layer].v, v, none, false, kv_heads, 0});
}

void keep_recent(Pass& pass, const KvCache& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, const Buffer& v,
                 uint32_t kv_heads, float eps) {
    const LayerCache& here = cache.layers[layer];
    if (!here.ring || pass.tokens == 1) return;
    const HeadNorm none{v};
    append_recent(pass, keys_of(here.k, k, w, kv_heads, eps), *cache.recent, *here.ring, KvSide::key, RECENT_RING);
    append_recent(pass, {here.v, v, none, false, kv_heads, 0}, *cache.recent, *here.ring, KvSide::value, RECENT_RING);
}

void kv_decode(Pass& pass, const Buffer& x, const KvCache& cache, uint32_t layer, KvSide side, uint32_t kv_heads,
               uint32_t position) {
    const LayerCache& here = cache.layers[layer];
    const CacheCodec& codec = here.side(side);
    for (const CacheSlice& slice : here.slices) {
        const CacheLayout& at = slice.layout;
        const kv_decode_params params{kv_heads, slice.first_head, here.capacity, at.codes(side), at.scales(side), position, {},
                                      {}};
        const uint64_t vectors = uint64_t(slice.heads) * pass.tokens, d = pass.head_dim;
        const Work work{vectors * (d * 4 + kv_vector_bytes(codec.type, pass.head_dim)), vectors * d * 16};
        pass.recorder.dispatch<shader::kv_decode>(
            {slice.heads, pass.tokens}, kv_decode_constants(pass.tuning, pass.head_dim, codec.type, codec.rotation_constant()),
            with_signs(params, codec.rotation), work, x, slice.buffer, matrix_or(pass.context, codec));
    }
}

void attention(Pass& pass, const Buffer& y, View partials, const Buffer& q, const KvCache& cache, uint32_t layer, uint32_t heads,
               uint32_t kv_heads) {
    const LayerCache& here = cache.layers[layer];
    const uint32_t group = heads / kv_heads, window = here.ring ? cache.recent->tokens : 0;
    const Parts parts = cut_into_parts(pass, partials.bytes, here.types(), heads, group, here.ring.has_value());
    const auto projected = uint32_t(pass.tokens * heads * pass.head_dim);
    const Attended all{here.types(), heads, group, here.ring ? RECENT_LEFT_OUT : RECENT_NONE};
    for (const CacheSlice& slice : here.slices) {
        const CacheLayout& at = slice.layout;
        attend(pass, here.ring ? View(*partials.buffer, partials.offset, parts.recent_at) : partials, q, slice.buffer,
               slice.heads, all,
               {heads, slice.first_head, here.capacity, parts.splits, at.k_codes, at.k_scales, at.v_codes, at.v_scales, projected,
                window, 0, 1, parts.step});
    }
    if (here.ring) {
        const RecentVectors& recent = *cache.recent;
        const auto values = uint32_t(recent.side_bytes() / 4);
        const uint32_t block = pass.tokens == 1 ? 0 : recent.block_tokens;
        attend(pass, View(*partials.buffer, partials.offset + parts.recent_at, partials.bytes - parts.recent_at), q,
               recent.buffer, kv_heads, {{KvType::f16, KvType::f16}, heads, group, RECENT_ALONE},
               {heads, 0, block, parts.splits, 0, 0, values, 0, projected, window, *here.ring, recent.ring_tokens(), parts.step});
    }
    merge(pass, y, partials, here.v, heads, parts);
}

uint64_t partials_bytes(const Tuning& tuning, uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected, bool recent) {
    const auto of = [&](uint32_t count, uint32_t splits) {
        const uint64_t all = count * parts_bytes(heads, head_dim, projected);
        return splits * all + (recent ? all + most_alignment : 0);
    };
    return std::max(of(1, tuning.splits), of(tokens, 1));
}

} // namespace tq::gpu
