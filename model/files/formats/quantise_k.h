// Encoders of the K formats: for each sub-block the scale and minimum of the least weighted error are searched for, and then the
// codes are chosen for what of these the block can store. Sums are in one order everywhere, so that blocks are.
#pragma once
#include <cstddef>

namespace tq {

// to, all zeros before, = x[256], all below 2^26 in magnitude. importance[256]: how much an error of each element counts, beside
// the magnitude of the weights around it; nullptr: 1. A scale that fp16 cannot hold becomes infinite.
void quantise_q2_k(std::byte* to, const float* x, const float* importance);
void quantise_q3_k(std::byte* to, const float* x, const float* importance);
void quantise_q4_k(std::byte* to, const float* x, const float* importance);
void quantise_q5_k(std::byte* to, const float* x, const float* importance);
void quantise_q6_k(std::byte* to, const float* x, const float* importance);

} // namespace tq
