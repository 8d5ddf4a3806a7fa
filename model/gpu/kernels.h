// The instruction set: every GPU kernel as one typed function, outputs first. model/reference/kernels.h has the same names and
// says in plain loops what they mean.
#pragma once
#include "model/draw.h"
#include "model/gpu/cache.h"
#include "model/gpu/tuning.h"
#include "model/gpu/weights.h"
#include "runtime/recorder.h"

namespace tq::gpu {

// What a run of a recording takes: the host's copy of shaders/context.glsl.
struct Step {
    uint32_t position, tokens;
};

// What all kernels of one recorded pass share.
struct Pass {
    Recorder& recorder;
    const Tuning& tuning;
    const Buffer& context; // position, tokens, rotary table: shaders/context.glsl
    uint32_t tokens;       // the most that a run of the recording takes; context says how many it does
    uint32_t head_dim;
    const Step& step; // while recording: the most work there can be; while running: the run's. Outlives the commands.
};

// h[t] = row ids[t] of `embedding`. h: fp32 [tokens][cols], ids: uint32 [tokens]
void embed(Pass&, const Buffer& h, const Matrix& embedding, const Buffer& ids);

// y[t] = w * x[t] / sqrt(mean(x[t]^2) + eps). x, y: [tokens][cols]. `last_only`: of the last token only, into y[0].
void rms_norm(Pass&, const Buffer& y, const Buffer& x, const Buffer& w, uint32_t cols, float eps, bool last_only = false);

// What makes a block of more than one token: matmul, matmul_tiled or matmul_coopmat.
enum class MatmulKernel { plain, tiled, coopmat };
MatmulKernel matmul_kernel(const Tuning&, GgmlType, uint32_t tokens);

// y[t] = w x[t], or y[t] += w x[t] when `accumulate`. x: [tokens][w.cols], y: [tokens][w.rows], both with rows up to the next
// multiple of tuning.matmul_tile. One token: matvec.
void matmul(Pass&, View y, const Matrix& w, const Buffer& x, bool accumulate = false);

// y = w x of one vector, whatever pass.tokens is; or y += w x; or, of a matrix whose rows 2 i and 2 i + 1 belong together,
// y[i] = silu((w x)[2 i]) * (w x)[2 i + 1].
void matvec(Pass&, View y, const Matrix& w, View x, bool accumulate = false);
void matvec_gated(Pass&, View y, const Matrix& w, View x);

// RMS norm without a kernel of its own, for one token (tuning.fold_norms). The vector h is followed by itself times the norm's
// weights, and by sums of its squares: matvec_residual leaves both behind `h`, from float `h_floats` on, and matvec_normed
// divides what it makes by the rms. Elementwise and in this order what rms_norm and matvec would do, but for rounding.
struct Normed {
    View x;                         // the products; at float `squares` and on: the sums
    uint32_t squares, square_count; // a multiple of 4; how many sums
};
// h += w x. next_norm: [w.rows]. h: h_floats floats, then normed_floats(w.rows). h_floats: a multiple of 64.
Normed matvec_residual(Pass&, const Buffer& h, uint32_t h_floats, const Matrix& w, const Buffer& x, const Buffer& next_norm);
void matvec_normed(Pass&, View y, const Matrix& w, const Normed& x, float eps, bool gated = false);
uint64_t normed_floats(uint32_t rows);

// The weights of a layer's norm of heads, fp32 [head_dim], and behind them, where kv_heads is not 0, the conditions of each kv
// head: factors and means [2][head_dim] (model/kv/conditioning.h).
struct HeadNorm {
    const Buffer& weights;
    uint32_t kv_heads = 0;
};
// In that order; none are copied of no conditions.
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
// Where the cache keeps recent tokens, and the pass has several: puts the last of its own into the layer's ring, when attention
// has read what was there. k and v as k_append and v_append left them.
void keep_recent(Pass&, const KvCache& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, const Buffer& v,
                 uint32_t kv_heads, float eps);

// x[t][head] = what is stored of keys or values at position + t, decoded. x: [tokens][kv_heads][head_dim]
void kv_decode(Pass&, const Buffer& x, const KvCache& cache, uint32_t layer, KvSide side, uint32_t kv_heads, uint32_t position);

// y[t][head] = softmax(q . K) V over the positions up to the token's own, on the stored codes. q: as q_norm_rope leaves it,
// y: [tokens][heads][head_dim], partials: of partials_bytes() for as many tokens or more, which give a short block more splits
void attention(Pass&, const Buffer& y, View partials, const Buffer& q, const KvCache& cache, uint32_t layer, uint32_t heads,
               uint32_t kv_heads);
uint64_t partials_bytes(const Tuning&, uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected, bool recent);

// y = silu(gate) * up. y, gate, up: [tokens][cols]; or gate_up: [tokens][cols][2].
void swiglu(Pass&, const Buffer& y, View gate, View up, uint32_t cols);
void swiglu_pairs(Pass&, const Buffer& y, const Buffer& gate_up, uint32_t cols);

// The buffer of shaders/draw.glsl for a vocabulary, and where in it the drawn ids are.
uint64_t draw_bytes(uint32_t vocab_size);
constexpr uint64_t drawn_offset = sizeof(draw_settings) + DRAW_STEPS * 4, drawn_bytes = DRAW_STEPS * 4;

// candidates = key and id of the greatest logits of each stretch, in order: as many as `draw` says. logits: [vocab_size], at most
// most_drawn_logits; candidates: candidates_bytes()
void sample_candidates(Pass&, const Buffer& candidates, const Buffer& logits, const Buffer& draw, uint32_t vocab_size);
uint64_t candidates_bytes(uint32_t vocab_size);
constexpr uint32_t most_drawn_logits = DRAW_STRETCH * DRAW_STRETCHES;

// ids[0] = the token drawn of `candidates` as `draw` says (model/draw.h), which is also the next in its list of drawn ids; the
// context's position moves on, as does its count of tokens drawn.
void sample(Pass&, const Buffer& ids, const Buffer& draw, const Buffer& candidates, uint32_t vocab_size);

} // namespace tq::gpu
