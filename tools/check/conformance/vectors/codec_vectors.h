// Vectors at the limits of encoders, for the codec's tests on the CPU and on devices. The same bits on every platform: they are
// made with integers and correctly rounded operations only.
#pragma once
#include "model/kv/turboquant.h"
#include "tools/check/conformance/vectors/random.h"
#include <string>
#include <vector>

namespace tq::conformance {

// Vectors [count][head_dim], of kind i % codec_vector_kinds. Some kinds are exact after the rotation by `signs`.
constexpr uint32_t codec_vector_kinds = 22;
std::vector<float> codec_vectors(uint32_t count, uint32_t head_dim, const Signs& signs, uint64_t seed);
std::string codec_vector_kind(uint32_t kind);

// x with a component y_j of its rotation for which y_j^2 is fp32(B * |y|^2) exactly, B the threshold between magnitudes `index`
// and `index` + 1 of `type`: that code must be index + 1. Returns j.
uint32_t threshold_tie(std::span<float> x, KvType type, uint32_t index, const Signs& signs, Random& random);

} // namespace tq::conformance
