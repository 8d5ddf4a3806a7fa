// The definitions of the kernels, in plain fp32 loops, outputs first. A GPU kernel may do a part of one (k_append, v_append) or
// fuse several (matvec_gated, matvec_residual): conformance compares it with the functions that it replaces. The CPU path's
// kernels (model/cpu/kernels.h) are compared with these, too. The steps of a pass (steps.h) have the same names on all three.
#pragma once
#include "model/engine/sampling/device_sampling.h"
#include "model/host/network.h"
#include "model/reference/elementwise.h"
#include "model/weights/weights.h"

namespace tq::ref {

using host::CacheSide, host::LayerCache, host::PageScores, host::Place, host::Rope, host::Row;

// y[t] = w x[t], or y[t] += w x[t] when `accumulate`. x: [tokens][w.cols], y: [tokens][w.rows]
void matmul(ThreadPool&, std::span<float> y, const Tensor& w, std::span<const float> x, bool accumulate = false);

// q[t][head] = scale * R(C(RoPE(w * q / rms(q)))) in place, or RoPE(w * q) if there is no eps; R: the keys' rotation, if one is
// given; C: the channel scaling of the head's kv head, if there is any. q: [rows][heads][head_dim]. page_scores: resized and
// filled, for scores of q over sqrt(head_dim).
void q_norm_rope(ThreadPool&, std::span<float> q, std::span<const float> w, const Rope&, uint32_t heads, std::optional<float> eps,
                 float scale, const Rotation* rotation, const HeadConditions& conditions = {}, PageScores* page_scores = nullptr);

// Stores x[t][head] at slot and position rope.rows[t], in the full-precision window, too, if there is one; keys (weights not
// empty) go through k-norm (if there is an eps), RoPE and channel scaling first. x: [rows][kv heads][head_dim]
void kv_append(ThreadPool&, const LayerCache& cache, KvSide side, std::span<const float> x, std::span<const float> w, const Rope&,
               std::optional<float> eps, const HeadConditions& conditions = {});

// y[t][head] = softmax(q . K) V over the positions of slot rows[t].slot up to rows[t].position, computed on the stored codes,
// except for the window's vectors if the cache has one, and rotated back at the end. page_scores, if there are any, are added to
// q . K. q, y: [rows][heads][head_dim]
void attention(ThreadPool&, std::span<float> y, std::span<const float> q, const PageScores& page_scores, const LayerCache& cache,
               uint32_t heads, std::span<const Row> rows);

struct Candidate {
    float logit;
    uint32_t id;
};

// Returns the `count` greatest of these logits, or as many as there are, in descending order, on a tie the lower id first.
// `excluded`: bit id % 32 of word id / 32 set means that the id is left out.
std::vector<Candidate> sample_candidates(std::span<const float> logits, std::span<const uint32_t> excluded, uint32_t count);

// Returns the id sampled from at least one candidate in that order (model/engine/sampling/device_sampling.h).
uint32_t sample(std::span<const Candidate> candidates, const sampling_settings& settings, uint32_t random);
// The same from any number of candidates.
uint32_t sample_all(std::span<const Candidate> candidates, const sampling_settings& settings, uint32_t random);

} // namespace tq::ref
