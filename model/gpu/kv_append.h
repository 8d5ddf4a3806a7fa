// Head vectors on their way to attention: norm, RoPE, channel scaling and rotation of queries and keys, and what the cache
// stores.
#pragma once
#include "model/gpu/cache.h"
#include "model/gpu/pass.h"

namespace tq::gpu {

// The weights of a layer's norm of heads, fp32 [head_dim], and behind them, where kv_heads is not 0, the conditions of each kv
// head: factors and means [2][head_dim] (model/kv/conditioning.h).
struct HeadNorm {
    const Buffer& weights;
    uint32_t kv_heads = 0;
};
// Returns the floats of a HeadNorm: weights [head_dim], then factors and means of each kv head; the weights alone where there are
// no conditions.
std::vector<float> head_norm_floats(std::span<const float> weights, const HeadConditions& conditions);

// q[t][head] = R(C(RoPE(w * q / rms(q)))) / (sqrt(head_dim) * gain) in place, for keys stored as `keys` says: R is their
// rotation, if they have one, C are the conditions of w. Where the keys have QJL's bit, the projections of that follow. q:
// q_floats()
void q_norm_rope(Pass&, const Buffer& q, const HeadNorm& w, uint32_t heads, float eps, const CacheCodec& keys);
// [tokens][heads][head_dim], and once more where some layer's types have QJL's bit (`projected`).
uint64_t q_floats(uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected);

// Stores keys (after k-norm, RoPE and the conditions of w) and values of the block at its positions; k may be overwritten. k, v:
// [tokens][kv_heads][head_dim]
void k_append(Pass&, const KvCache& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, uint32_t kv_heads, float eps);
void v_append(Pass&, const KvCache& cache, uint32_t layer, const Buffer& v, uint32_t kv_heads);
// Where the cache has a window, and the pass has several: puts the last of its own into the layer's ring, when attention
// has read what was there. k and v as k_append and v_append left them.
void keep_window(Pass&, const KvCache& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, const Buffer& v,
                 uint32_t kv_heads, float eps);

// x[t][head] = what is stored of keys or values at position + t, decoded. x: [tokens][kv_heads][head_dim]
void kv_decode(Pass&, const Buffer& x, const KvCache& cache, uint32_t layer, KvSide side, uint32_t kv_heads, uint32_t position);

// Invocations of the subgroup variants of kernels that work on one head vector; 0: there are none for it.
uint32_t head_subgroup(const Tuning& t, uint32_t head_dim, uint32_t rotation);

// What of `codec` a kernel's parameters hold.
template <class Params> Params with_signs(Params params, const Rotation& rotation) {
    std::ranges::copy(rotation.signs, params.signs);
    std::ranges::copy(rotation.projection, params.projection);
    return params;
}

// The matrix of a dense rotation; otherwise `unused`, for a binding is never empty.
inline const Buffer& matrix_or(const Buffer& unused, const CacheCodec& codec) { return codec.matrix ? *codec.matrix : unused; }

constexpr uint32_t max_alignment = 256; // that Vulkan lets a device ask of a binding

} // namespace tq::gpu
