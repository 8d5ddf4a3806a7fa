// Integer products of one or a few tokens with quantised weights, for processors that multiply bytes (AVX-512 with VNNI). A
// token's activations become fixed-point numbers of 22 bits, in three bytes, with a scale for each 32 of them: the error is at
// most 2.5e-7 of the largest of the 32, where fp32 has 6e-8 of each. Sums over runs of 16 columns are exact; each run is in a
// lane of its own, where scales and the total are fp32.
#pragma once
#include "base/thread_pool.h"
#include "model/cpu/aligned_floats.h"
#include "model/formats/blocks.h"

namespace tq::cpu {

inline constexpr size_t max_fixed_point_tokens = 16; // whose totals stay in the L1 cache
inline constexpr size_t dots_rows = 4;               // that share the loads of activations

// Activations x[tokens][cols], at most max_fixed_point_tokens and cols a multiple of 256, in groups of 256 columns.
struct FixedPoint {
    const int8_t* digits; // [cols / 256][tokens][3][4][64]: x = scale * (65536 digits[0] + 256 digits[1] + digits[2]), four steps
                          // of four columns of each of 16 runs
    const float* factors; // [cols / 256][tokens][4][16]: of each run of 16 columns 4 scale, the integers -128 sum(digits[0]) and
                          // -128 sum(256 digits[1] + digits[2]), and the sum of x
    size_t tokens, cols;
};

// True where this processor has integer products for rows of this format and length.
bool has_fixed_point(GgmlType type, size_t cols);

// Enables or disables them from now on, for tests of the other kernels. Returns whether they are enabled.
bool use_fixed_point(bool use);

// Returns the greatest |activation| / scale at which sums with these weights cannot overflow.
float fixed_point_limit(GgmlType type);

// Converts x[tokens][cols], which may be infinite or NaN: every product with that token then is, too. The result is in `storage`,
// aligned memory of as many floats as x; without a pool, on the calling thread alone.
FixedPoint to_fixed_point(ThreadPool*, std::span<float> storage, std::span<const float> x, size_t cols, float limit);

// sums[tokens][dots_rows] = rows[dots_rows] . x, for formats and lengths with has_fixed_point. A sum depends on neither the other
// rows nor the other tokens.
void dots(GgmlType type, float* sums, const uint8_t* const* rows, const FixedPoint& x);

} // namespace tq::cpu
