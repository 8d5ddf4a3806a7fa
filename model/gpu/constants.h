// The values of each kernel's specialisation constants: one function per kernel, for kernels.cpp, which records it, and
// variants.cpp, which lists what can be recorded.
#pragma once
#include "model/gpu/tuning.h"
#include "model/kv/options.h"
#include "shaders.gen.h"
#include <algorithm>

namespace tq::gpu {

template <const auto& shader> using ConstantsOf = Constants<shader.interface.constants>;

// The kernels of every weight format have the same ones.
inline ConstantsOf<shader::embed_f32> embed_constants(const Tuning& t, uint32_t interleave) { return {t.workgroup, interleave}; }
inline ConstantsOf<shader::matvec_f32> matvec_constants(const Tuning& t, uint32_t interleave, bool accumulate) {
    return {t.workgroup, t.matvec_lanes, t.matvec_rows, accumulate, interleave};
}
inline ConstantsOf<shader::matmul_f32> matmul_constants(const Tuning& t, uint32_t interleave, bool accumulate) {
    return {t.workgroup, t.matmul_tile, t.matmul_rows, accumulate, interleave};
}

inline ConstantsOf<shader::rms_norm> rms_norm_constants(const Tuning& t) { return {t.workgroup}; }
inline ConstantsOf<shader::swiglu> swiglu_constants(const Tuning& t) { return {t.workgroup}; }
// `rotation`: ROTATION_WHT, _HAAR or _NONE of shaders/kv_types.h. `projected`: the keys, or the values, have QJL's bit.
inline ConstantsOf<shader::q_norm_rope> q_norm_rope_constants(const Tuning& t, uint32_t head_dim, uint32_t rotation,
                                                              bool projected) {
    return {t.workgroup, head_dim, rotation, projected};
}
inline ConstantsOf<shader::kv_append> kv_append_constants(const Tuning& t, uint32_t head_dim, KvType type, bool is_key,
                                                          uint32_t rotation, ScaleRule rule) {
    return {t.workgroup, head_dim, uint32_t(type), is_key, rotation, uint32_t(rule)};
}
inline ConstantsOf<shader::kv_decode> kv_decode_constants(const Tuning& t, uint32_t head_dim, KvType type, uint32_t rotation) {
    return {t.workgroup, head_dim, uint32_t(type), rotation};
}

// How many of the `group` query heads of a kv head, and of how many tokens, share a workgroup of the attention kernel.
struct AttentionTile {
    uint32_t heads, tokens;
};
AttentionTile attention_tile(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group, uint32_t tokens);

inline ConstantsOf<shader::attention> attention_constants(const Tuning& t, uint32_t head_dim, KvTypes types, uint32_t group,
                                                          uint32_t tokens) {
    const AttentionTile tile = attention_tile(t, head_dim, types, group, tokens);
    return {std::min(t.workgroup, head_dim), head_dim, uint32_t(types.k), uint32_t(types.v), group, tile.heads, tile.tokens};
}
inline ConstantsOf<shader::attention_merge> attention_merge_constants(const Tuning& t, uint32_t head_dim, uint32_t rotation,
                                                                      bool projected) {
    return {t.workgroup, head_dim, rotation, projected};
}

} // namespace tq::gpu
