// Models whose keys are hard to store, made from others that say the same: channels of keys are scaled at random, and those of
// queries the other way, as trained models of this kind have them.
#pragma once
#include <cstdint>
#include <filesystem>

namespace tq::test {

// Writes the GGUF file `from`, whose norms of queries and keys are F32, anew as `to`. In every layer k_norm is multiplied and
// q_norm divided by exp(spread * n), n from a normal distribution for each pair of channels that RoPE mixes: no score changes but
// for the rounding of the weights. Throws Error.
void write_outlier_model(const std::filesystem::path& from, const std::filesystem::path& to, double spread, uint64_t seed);

} // namespace tq::test
