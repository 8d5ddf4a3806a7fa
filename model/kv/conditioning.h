// Conditioning of keys: what each channel of a key is divided by before it is stored, and of a query multiplied by, so that
// scores stay what they are and the errors of stored keys do less to them. turboquant.md, section "Conditioning".
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tq {

// Keys as a text showed them (model/files/calibration.h): after RoPE, (key - mean) / scale is stored, and query * scale compared
// with it.
struct KeyCalibration {
    uint32_t layers = 0, kv_heads = 0, head_dim = 0;
    std::vector<float> scales, means; // [layers][kv_heads][head_dim]
};

struct KeyConditioning {
    // automatic: norms where a layer's keys are stored as codes, none where as plain values.
    enum class Kind { automatic, none, norms, measured };
    Kind kind = Kind::automatic;
    std::string file;                                  // of `measured`
    std::shared_ptr<const KeyCalibration> calibration; // what is in it, once the model is known
};

// auto, none, norms, or else a file.
KeyConditioning parse_key_conditioning(std::string_view text);
// As parse_key_conditioning reads it.
std::string describe(const KeyConditioning& conditioning);

// What follows the RoPE of a layer's heads: x' = (x - mean) * factor. [kv_heads][head_dim] each; empty: x' = x.
struct HeadConditions {
    std::vector<float> factors, means;

    bool empty() const { return factors.empty(); }
};

// The weights of a layer's norms of queries and keys, [head_dim], and what follows their RoPE. Not of `automatic`: that is
// KvOptions::conditioning_of's to decide.
struct HeadNorms {
    std::vector<float> q, k;
    HeadConditions q_conditions, k_conditions;
};
HeadNorms head_norms(const KeyConditioning& conditioning, uint32_t layer, std::vector<float> q, std::vector<float> k);

// q *= g and k /= g, one g for channels c and c + head_dim / 2, which RoPE mixes: g^2 = rms(k) / rms(q) of the two, for the error
// of a score grows with |q'| |k'|, whose least is where both are of one size in every channel. g = 1 where it would be 0 or
// infinite, or take a weight out of fp32's normal numbers.
void balance_norms(std::span<float> q, std::span<float> k);

// x = (x - mean) * factor, each rounded, of kv head `head`.
void condition(std::span<float> x, const HeadConditions& conditions, uint32_t head);

} // namespace tq
