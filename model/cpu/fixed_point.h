// Integer products of one or a few tokens with quantised weights; on processors with AVX-512 VNNI also of blocks. A token's
// activations become fixed-point numbers of three digits, signed bytes, with a scale for each 16 of them: the error is at most
// 6e-8 (VNNI) or 4.8e-7 (AVX2) of the largest of the 16, compared with 6e-8 of each number in fp32. Sums over runs of 16 columns
// are exact; each run is in a lane of its own, and scales and totals are fp32.
#pragma once
#include "base/thread_pool.h"
#include "model/cpu/aligned_floats.h"
#include "model/files/formats/blocks.h"

namespace tq::cpu {

inline constexpr size_t max_fixed_point_tokens = 32; // of a call, whose totals stay in the L1 cache
inline constexpr size_t dots_rows = 4;               // that share the loads of activations

// Instruction sets with integer products.
enum class FixedPointSet { none, avx2, avx_vnni, vnni };

// Activations x[tokens][cols] in groups of 256 columns; the last group is filled up with zeros.
struct FixedPoint {
    const int8_t* digits; // [groups][tokens][3][4][64]: x = scale (base (base digits[0] + digits[1]) + digits[2]), four steps of
                          // four columns of each of 16 runs
    const float* factors; // [groups][tokens][4][16]: of each run of 16 columns the scale, the sum of x, and as integers the sums
                          // of digits: AVX2 of base digits[0] + digits[1] and of digits[2], VNNI of digits[0] and of
                          // base digits[1] + digits[2]
    size_t tokens, cols;
};

// Whether this processor has integer products for rows of this format and length: of separate tokens, and of blocks.
bool has_fixed_point(GgmlType type, size_t cols);
bool has_fixed_point_blocks(GgmlType type, size_t cols);

// Uses an instruction set from now on, for tests; at first it is the best. Returns false if this processor does not have it.
bool use_fixed_point(FixedPointSet set);

// The storage of to_fixed_point() for that many tokens, in floats.
size_t fixed_point_floats(size_t tokens, size_t cols);

// Converts x[tokens][cols], which may be infinite or NaN: every product with that token then is, too. The result is in `storage`,
// aligned memory of fixed_point_floats(); without a pool, on the calling thread alone.
FixedPoint to_fixed_point(ThreadPool*, std::span<float> storage, std::span<const float> x, size_t cols);

// sums[count][dots_rows] = rows[dots_rows] . x of `count` tokens from `first` on, at most max_fixed_point_tokens, for formats and
// lengths with has_fixed_point. A sum depends on neither the other rows nor the other tokens. The memory of the rows ends at
// `end`.
void dots(GgmlType type, float* sums, const uint8_t* const* rows, const uint8_t* end, const FixedPoint& x, size_t first,
          size_t count);

} // namespace tq::cpu
