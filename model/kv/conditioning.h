// Conditioning of keys: each channel of a key is divided by a factor before it is stored, and that of a query multiplied by it,
// so that scores are unchanged and errors of stored keys matter less. Keys also lack a mean. RoPE turns it with the position, so
// that each page of a cache has its own; a query's product with that of a page (page_scores) is added to the page's scores.
// turboquant.md, "Conditioning".
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tq {

// Statistics of keys on a text (model/files/calibration.h): after RoPE, (key - mean of its page) / scale is stored, and query *
// scale is multiplied with it.
struct KeyCalibration {
    uint32_t layers = 0, kv_heads = 0, head_dim = 0;
    std::vector<float> scales, means; // [layers][kv_heads][head_dim]
};

struct KeyConditioning {
    // automatic: `measured` if a layer's keys are stored as codes, `norms` if nothing was measured; `none` if they are plain
    // values. norms: from the weights of the norms of queries and keys, or, in models without these, from attn_q, attn_k and
    // their biases.
    enum class Kind { automatic, none, norms, measured };
    Kind kind = Kind::automatic;
    std::string file;                                  // of `measured`
    std::shared_ptr<const KeyCalibration> calibration; // its content, once the model is known; of `automatic`, if there is one
    bool plain = false; // of a layer whose keys are stored as plain values: they lack no mean (KvOptions::conditioning_of)
};

// Parses auto, none, norms, or else a file.
KeyConditioning parse_key_conditioning(std::string_view text);
// Returns the text that parse_key_conditioning reads.
std::string describe(const KeyConditioning& conditioning);

// The positions over which means are taken, and whose keys lack the same one: a page's. In pairs of channels that turn slowly a
// mean is nearly as long as what it is of, in others nearly 0.
inline constexpr uint32_t mean_positions = 256;

// The channel scaling after the RoPE of a layer's heads. Keys become (x - mean) * factor, queries x * factor; the mean is `means`
// after RoPE at the first position of the key's page. [kv_heads][head_dim] each. No factors: x stays; no means: 0.
struct HeadConditions {
    std::vector<float> factors, means;

    bool empty() const { return factors.empty(); }
};

// The scaling by the weights of a layer whose heads have no norms (model/weights/channel_scales.h): keys lack the mean of what
// RoPE makes of their biases. [kv_heads][head_dim] each; no scales: nothing is known, or norms tell.
struct KeyScaling {
    std::vector<float> scales, means;
};

// The weights of a layer's norms of queries and keys, [head_dim], and the channel scaling after their RoPE. Not for
// `automatic`, which KvOptions::conditioning_of resolves. rotary_dim: Config::rotary_dim.
struct HeadNorms {
    std::vector<float> q, k;
    HeadConditions q_conditions, k_conditions;
};
HeadNorms head_norms(const KeyConditioning& conditioning, uint32_t layer, std::vector<float> q, std::vector<float> k,
                     const KeyScaling& from_weights = {}, uint32_t rotary_dim = 0);

// q *= g and k /= g, with one g for channels c and c + rotary_dim / 2, which RoPE mixes: g^2 = rms(k) / rms(q) of the two.
// rotary_dim: channels that RoPE turns, 0: all; each other one has a g of its own. The
// error of a score grows with |q'| |k'|, which is least if both have the same magnitude in every channel. g = 1 if it would be 0
// or infinite, or take a weight out of fp32's normal numbers.
void balance_norms(std::span<float> q, std::span<float> k, uint32_t rotary_dim = 0);

// x = (x - mean) * factor, each rounded, for a key of kv head `head`. turns: the rotary table's row of the first position of its
// page, cosine and sine of each pair; channels after these do not turn.
void condition_key(std::span<float> x, const HeadConditions& conditions, uint32_t head, std::span<const float> turns);
// x *= factor, for a query that attends to kv head `head`.
void condition_query(std::span<float> x, const HeadConditions& conditions, uint32_t head);

// scores[p] = scale * the product of a query after RoPE, x[head_dim], and the mean that the keys of page p lack, in the first
// `turned` channels: those of the others are the same in all pages, and change no softmax. rope_table: model/rope.h, to the first
// position of the last page at least.
void page_scores(std::span<float> scores, std::span<const float> x, const HeadConditions& conditions, uint32_t head, float scale,
                 std::span<const float> rope_table, size_t turned);

} // namespace tq
