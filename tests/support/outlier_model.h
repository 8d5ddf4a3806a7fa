// Models whose keys are hard to quantise, made from others with the same output: channels of keys are scaled at random, and
// those of queries by the inverse, as in trained models of this kind.
#pragma once
#include <cstdint>
#include <filesystem>

namespace tq::test {

// Writes the GGUF file `from`, whose norms of queries and keys are F32, again as `to`. In every layer k_norm is multiplied and
// q_norm divided by exp(spread * n), n from a normal distribution for each pair of channels that RoPE mixes: scores change only
// by the rounding of the weights. Throws Error.
void write_outlier_model(const std::filesystem::path& from, const std::filesystem::path& to, double spread, uint64_t seed);

} // namespace tq::test
