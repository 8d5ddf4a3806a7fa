// Conditioning of keys (channel scaling, and a mean that is left out): each channel of a key is divided by a factor before it is
// stored, and that of a query multiplied by it, so that scores are unchanged and errors of stored keys matter less.
// turboquant.md, "Conditioning".
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tq {

// Statistics of keys on a text (model/files/calibration.h): after RoPE, (key - mean) / scale is stored, and query * scale is
// multiplied with it.
struct KeyCalibration {
    uint32_t layers = 0, kv_heads = 0, head_dim = 0;
    std::vector<float> scales, means; // [layers][kv_heads][head_dim]
};

struct KeyConditioning {
    // automatic: where a layer's keys are stored as codes measured, or norms where nothing was measured; none where they are
    // plain values. norms: from the weights of the norms of queries and keys, or, in models without these, from attn_q, attn_k
    // and their biases.
    enum class Kind { automatic, none, norms, measured };
    Kind kind = Kind::automatic;
    std::string file;                                  // of `measured`
    std::shared_ptr<const KeyCalibration> calibration; // its content, once the model is known; of `automatic`, if there is one
};

// Parses auto, none, norms, or else a file.
KeyConditioning parse_key_conditioning(std::string_view text);
// Returns the text that parse_key_conditioning reads.
std::string describe(const KeyConditioning& conditioning);

// The channel scaling after the RoPE of a layer's heads: x' = (x - mean) * factor. [kv_heads][head_dim] each; empty: x' = x.
struct HeadConditions {
    std::vector<float> factors, means;

    bool empty() const { return factors.empty(); }
};

// The same of the weights of a layer whose heads have no norms (model/weights/channel_scales.h): keys lack the mean of what RoPE
// makes of their biases. [kv_heads][head_dim] each; empty: nothing is known, or norms tell.
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

// The positions over which the mean of biases after RoPE is taken: as many as most contexts have. In pairs of channels that turn
// slowly it is nearly the bias itself, in others nearly 0. It does not depend on the context, since stored keys outlive it.
inline constexpr uint32_t mean_positions = 2048;

// q *= g and k /= g, with one g for channels c and c + rotary_dim / 2, which RoPE mixes: g^2 = rms(k) / rms(q) of the two.
// rotary_dim: channels that RoPE turns, 0: all; each other one has a g of its own. The
// error of a score grows with |q'| |k'|, which is least where both have the same magnitude in every channel. g = 1 where it
// would be 0 or infinite, or take a weight out of fp32's normal numbers.
void balance_norms(std::span<float> q, std::span<float> k, uint32_t rotary_dim = 0);

// x = (x - mean) * factor, each rounded, of kv head `head`.
void condition(std::span<float> x, const HeadConditions& conditions, uint32_t head);

} // namespace tq
