// The processing of head vectors before attention: norm, RoPE, channel scaling and rotation of queries and keys, and storing
// into the cache.
#pragma once
#include "model/gpu/cache.h"
#include "model/gpu/pass.h"
#include <optional>

namespace tq::gpu {

// The weights of a layer's norm of heads, fp32 [head_dim]. If kv_heads is not 0, the channel scaling of each kv head follows:
// factors and means [2][head_dim] (model/kv/conditioning.h).
struct HeadNorm {
    const Buffer& weights;
    uint32_t kv_heads = 0;
    bool has_means = false; // keys lack those means
};

// The place of page scores (model/host/network.h), [rows][heads][pages], in the buffer of queries: their offset in floats. No
// pages: there is no room for any.
struct PageScores {
    uint32_t at = 0, pages = 0;
};
inline uint64_t page_score_floats(uint32_t tokens, uint32_t heads, uint32_t pages) {
    return (uint64_t(tokens) * heads * pages + 3) / 4 * 4; // whole texels
}

// Returns the floats of a HeadNorm: weights [head_dim], then factors and means of each kv head; the weights alone if there is no
// channel scaling.
std::vector<float> head_norm_floats(std::span<const float> weights, const HeadConditions& conditions);

// Returns the floats of a layer's scales of values, what v_append divides by: powers of two, [kv_heads][head_dim]
// (model/weights/channel_scales.h), after the matrix of a dense rotation.
std::vector<float> value_scale_floats(const KvCodec& values, std::span<const float> scales);

// q[t][head] = R(C(RoPE(w * q / rms(q)))) / (sqrt(head_dim) * gain) in place, or without the norm if there is no eps. `keys`
// describes how keys are stored: R is their rotation, if they have one; C is the channel scaling of w. q: tokens * heads *
// head_dim floats, and page_scores, which get the terms that attention adds if w has means.
void q_norm_rope(Pass&, const Buffer& q, const PageScores& page_scores, const HeadNorm& w, uint32_t heads,
                 std::optional<float> eps, const CacheCodec& keys);

// Stores keys (after k-norm if there is an eps, RoPE and the channel scaling of w) and values of the rows at their positions;
// k may be overwritten. k, v: [tokens][kv_heads][head_dim]; v_scales: value_scale_floats(); null: values are stored as they
// are
void k_append(Pass&, const DeviceStorage& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, uint32_t kv_heads,
              std::optional<float> eps);
void v_append(Pass&, const DeviceStorage& cache, uint32_t layer, const Buffer& v, uint32_t kv_heads,
              const Buffer* v_scales = nullptr);
// If the cache has a window and the pass is a block: copies its last tokens to the layer's ring. Call it after attention, which
// reads the old content. k and v as k_append and v_append left them.
void keep_window(Pass&, const DeviceStorage& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, const Buffer& v,
                 uint32_t kv_heads, std::optional<float> eps, const Buffer* v_scales = nullptr);

// x[t][head] = the decoded key or value at the row's position. x: [tokens][kv_heads][head_dim]
void kv_decode(Pass&, const Buffer& x, const DeviceStorage& cache, uint32_t layer, KvSide side, uint32_t kv_heads);

// Returns the invocations of the subgroup variants of kernels that work on one head vector; 0: there is no variant for it. half:
// an invocation owns channels c and c + half; 0: half = head_dim / 2.
uint32_t head_subgroup(const Tuning& t, uint32_t head_dim, uint32_t rotation, uint32_t half = 0);

// Copies the signs of `rotation` into a kernel's parameters.
template <class Params> Params with_signs(Params params, const Rotation& rotation) {
    std::ranges::copy(rotation.signs, params.signs);
    return params;
}

// Returns the matrix of a dense rotation; otherwise `unused`, since a binding must not be empty.
inline const Buffer& matrix_or(const Buffer& unused, const CacheCodec& codec) { return codec.matrix ? *codec.matrix : unused; }

constexpr uint32_t max_alignment = 256; // the largest that Vulkan allows a device to require of a binding

} // namespace tq::gpu
