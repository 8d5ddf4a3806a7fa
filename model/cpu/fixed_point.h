// Integer products of one or a few tokens with quantised weights, for processors that multiply bytes (AVX-512 with VNNI). A
// token's activations become fixed-point numbers of 22 bits, in three bytes, with a scale for each 32 of them: the error is at
// most 2.5e-7 of the largest of the 32, where fp32 has 6e-8 of each. Sums of four products are exact; scales and the total are
// fp32.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/formats/blocks.h"

namespace tq::cpu {

// Activations x[tokens][cols], cols a multiple of 256, each token's in the order of the columns.
struct FixedPoint {
    const int8_t* digits; // [tokens][cols / 64][3][64]: x = scale * (65536 digits[0] + 256 digits[1] + digits[2])
    const float* factors; // [tokens][cols / 256][3][16]: eight scales and eight sums of -x, of 32 columns each; scales, and sums
                          // of x, of 16
    size_t tokens, cols;
};

// True where this processor has integer products for rows of this format and length.
bool has_fixed_point(GgmlType type, size_t cols);

// Enables or disables them from now on, for tests of the other kernels. Returns whether they are enabled.
bool use_fixed_point(bool use);

// Returns the greatest |activation| / scale at which sums with these weights cannot overflow.
float fixed_point_limit(GgmlType type);

// Converts x[tokens][cols], which may be infinite or NaN: every product with that token then is, too. The result is in `storage`.
FixedPoint to_fixed_point(AlignedFloats& storage, std::span<const float> x, size_t cols, float limit);

// sums[tokens] = row . x, for formats and lengths with has_fixed_point. A token's does not depend on the others.
void dots(GgmlType type, float* sums, const uint8_t* row, const FixedPoint& x);

} // namespace tq::cpu
