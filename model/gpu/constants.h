// The values of each kernel's specialisation constants: one function per kernel, for kernels.cpp, which records it, and
// variants.cpp, which lists what can be recorded.
#pragma once
#include "model/gpu/tuning.h"
#include "model/kv/options.h"
#include "shaders.gen.h"
#include "shaders/matvec_outputs.h"
#include <algorithm>
#include <optional>

namespace tq::gpu {

template <const auto& shader> using ConstantsOf = Constants<shader.interface.constants>;

// The kernels of every weight format have the same ones.
inline ConstantsOf<shader::embed_f32> embed_constants(const Tuning& t, uint32_t interleave) { return {t.workgroup, interleave}; }

struct MatvecTile {
    uint32_t workgroup, lanes, rows;
    uint32_t rows_per_workgroup() const { return workgroup / lanes * rows; }
};
// `output`: one of shaders/matvec_outputs.h.
inline MatvecTile matvec_tile(const Tuning& t, uint32_t output) {
    return {t.workgroup, t.matvec_lanes, output == MATVEC_GATED ? (t.matvec_rows + 1) / 2 * 2 : t.matvec_rows};
}
inline bool matvec_uses_subgroup(const Tuning& t) { return t.matvec_lanes > 1 && t.matvec_lanes <= t.subgroup; }
inline ConstantsOf<shader::matvec_f32> matvec_constants(const Tuning& t, uint32_t interleave, uint32_t output, bool normed) {
    const MatvecTile tile = matvec_tile(t, output);
    return {tile.workgroup, tile.lanes, tile.rows, output, interleave, normed};
}
inline ConstantsOf<shader::matmul_f32> matmul_constants(const Tuning& t, uint32_t interleave, bool accumulate) {
    return {t.workgroup, t.matmul_tile, t.matmul_rows, accumulate, interleave};
}

// What a workgroup of matmul_tiled makes, and each of its invocations: the largest tile that the shared memory holds.
struct MatmulTile {
    uint32_t rows, tokens, invocation_rows, invocation_tokens;

    constexpr uint32_t workgroup() const { return rows / invocation_rows * (tokens / invocation_tokens); }
};
MatmulTile matmul_tile(const Tuning& t);

inline ConstantsOf<shader::matmul_tiled_f32> matmul_tiled_constants(const Tuning& t, uint32_t interleave, bool accumulate) {
    const MatmulTile tile = matmul_tile(t);
    return {tile.workgroup(), tile.rows, tile.tokens, tile.invocation_rows, tile.invocation_tokens, accumulate, interleave};
}

#if TQ_COOPERATIVE_MATRIX
// The largest tile of matmul_coopmat, in workgroups of four subgroups.
struct CoopmatTile {
    uint32_t rows, tokens;
};
CoopmatTile coopmat_tile(const Tuning& t);

inline ConstantsOf<shader::matmul_coopmat_f16> matmul_coopmat_constants(const Tuning& t, uint32_t interleave, bool accumulate) {
    const CoopmatTile tile = coopmat_tile(t);
    return {4 * t.matrix_subgroup, tile.rows, tile.tokens, t.matrix_side, accumulate, interleave};
}
#endif

inline ConstantsOf<shader::rms_norm> rms_norm_constants(const Tuning& t) { return {t.workgroup}; }
inline ConstantsOf<shader::swiglu> swiglu_constants(const Tuning& t) { return {t.workgroup}; }
// Of 64 invocations at least: llvmpipe leaves its loops after 65535 iterations of all together, of which the least favourable
// logits take up to 1024 * 1024 / invocations.
inline uint32_t sampling_workgroup(const Tuning& t) { return std::max(t.workgroup, 64u); }
inline ConstantsOf<shader::sample_candidates> sample_candidates_constants(const Tuning& t) { return {sampling_workgroup(t)}; }
inline ConstantsOf<shader::sample> sample_constants(const Tuning& t) { return {sampling_workgroup(t)}; }

// Invocations of the subgroup variants of kernels that work on one head vector; 0: there are none for it.
uint32_t head_subgroup(const Tuning& t, uint32_t head_dim, uint32_t rotation);
uint32_t append_subgroup(const Tuning& t, uint32_t head_dim, KvType type, uint32_t rotation);

// Those kernels, in variants of `subgroup` invocations, or of the device's workgroup where it is 0. `rotation`: ROTATION_WHT,
// _HAAR or _NONE of shaders/kv_types.h. `projected`: the keys, or the values, have QJL's bit. `conditioned`: conditions follow
// RoPE. `recent`: one of RECENT_* there, or whether recent tokens have a part of their own.
inline ConstantsOf<shader::q_norm_rope> q_norm_rope_constants(const Tuning& t, uint32_t subgroup, uint32_t head_dim,
                                                              uint32_t rotation, bool projected, bool conditioned) {
    return {subgroup ? subgroup : t.workgroup, head_dim, rotation, projected, conditioned};
}
inline ConstantsOf<shader::kv_append> kv_append_constants(const Tuning& t, uint32_t subgroup, uint32_t head_dim, KvType type,
                                                          bool is_key, uint32_t rotation, ScaleRule rule, bool conditioned,
                                                          uint32_t recent) {
    return {subgroup ? subgroup : t.workgroup, head_dim, uint32_t(type), is_key, rotation, uint32_t(rule), conditioned, recent};
}
inline ConstantsOf<shader::attention_merge> attention_merge_constants(const Tuning& t, uint32_t subgroup, uint32_t head_dim,
                                                                      uint32_t rotation, bool projected, bool recent) {
    return {subgroup ? subgroup : t.workgroup, head_dim, rotation, projected, recent};
}
inline ConstantsOf<shader::kv_decode> kv_decode_constants(const Tuning& t, uint32_t head_dim, KvType type, uint32_t rotation) {
    return {t.workgroup, head_dim, uint32_t(type), rotation};
}

// How many of the `group` query heads of a kv head, and of how many tokens, share a workgroup of the attention kernel.
struct AttentionTile {
    uint32_t heads, tokens;
};
AttentionTile attention_tile(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group, uint32_t tokens);

// Two vectors of a key with QJL's bit, and two of the next, are more than registers hold.
inline uint32_t attention_keys(const Tuning& t, KvTypes types) {
    return is_qjl(types.k) || is_qjl(types.v) ? 1 : t.attention_keys;
}
inline uint32_t attention_lanes(const Tuning& t, uint32_t head_dim) { return std::min(t.workgroup, head_dim); }
inline ConstantsOf<shader::attention> attention_constants(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group,
                                                          uint32_t tokens, uint32_t recent) {
    const AttentionTile tile = attention_tile(t, head_dim, types, group, tokens);
    return {attention_lanes(t, head_dim), head_dim,  uint32_t(types.k), uint32_t(types.v), group, tile.heads, tile.tokens, recent,
            attention_keys(t, types),     t.subgroup};
}
// Whether attention_per_lane is the kernel for these types.
inline bool is_per_lane(const Tuning& t, KvTypes types) { return t.attention_per_lane && !is_qjl(types.k) && !is_qjl(types.v); }
inline ConstantsOf<shader::attention_per_lane> attention_per_lane_constants(const Tuning& t, uint32_t head_dim, KvTypes types,
                                                                            uint32_t group, uint32_t tokens, uint32_t recent) {
    const AttentionTile tile = attention_tile(t, head_dim, types, group, tokens);
    return {attention_lanes(t, head_dim), head_dim, uint32_t(types.k), uint32_t(types.v), group, tile.heads, tile.tokens, recent};
}

// attention_coopmat: a workgroup has `heads` of a kv head's query heads for `tokens` tokens, in strips of one subgroup each.
struct CoopmatAttention {
    uint32_t heads, tokens, keys; // keys: at a time

    uint32_t strips(const Tuning& t) const { return (heads * tokens + t.matrix_side - 1) / t.matrix_side; }
};
// Nothing where attention is the kernel: by the tuning, for types whose values are no fp16 numbers times one scale a vector, for
// head_dim 256, or for want of shared memory.
std::optional<CoopmatAttention> coopmat_attention(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group,
                                                  uint32_t tokens);
#if TQ_COOPERATIVE_MATRIX
inline ConstantsOf<shader::attention_coopmat> attention_coopmat_constants(const Tuning& t, const CoopmatAttention& tile,
                                                                          uint32_t head_dim, KvTypes types, uint32_t group,
                                                                          uint32_t recent) {
    return {tile.strips(t) * t.matrix_subgroup,
            head_dim,
            uint32_t(types.k),
            uint32_t(types.v),
            group,
            tile.heads,
            tile.tokens,
            recent,
            t.matrix_side,
            tile.keys};
}
#endif

// The parts that a sequence is cut into are multiples of so many tokens.
inline uint32_t attention_part_step(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group, uint32_t tokens) {
    const auto matrices = coopmat_attention(t, head_dim, types, group, tokens);
    return matrices ? matrices->keys : attention_lanes(t, head_dim);
}

} // namespace tq::gpu
