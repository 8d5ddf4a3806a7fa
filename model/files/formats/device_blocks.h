// The order of a block's bits in device memory, if it differs from the file's: kernels decode 32 weights at a time (a sub-block),
// and their bits lie together. For a sub-block's weights 0 ... 31:
//   nibbles: 16 bytes, the low ones of weights 0 ... 15, the high ones of 16 ... 31, as in Q4_0
//   pairs of bits: two words; those of weights 4 k + m and 16 + 4 k + m at bits 8 m + 2 k of the first and the second, k < 4
//   single bits: one word; that of weight 4 k + m at bit 8 m + k, k < 8
// so that (word >> k or 2 k) and a mask give four weights' bits, each in a byte. A block keeps its size.
#pragma once
#include <cstddef>

namespace tq {

// to = the block at `from`, in the device's order. For the table in model/files/formats/blocks.cpp, whose `parts` are of these
// blocks.
void arrange_q5_0(std::byte* to, const std::byte* from); // half d; fifth bits; nibbles
void arrange_q5_1(std::byte* to, const std::byte* from); // half d, m; fifth bits; nibbles
void arrange_q2_k(std::byte* to, const std::byte* from); // 16 bytes of sub-block scales and minimums; pairs; half d, dmin
// Third bits; pairs; the low nibbles of 16 scales, and in a third word their high pairs; half d.
void arrange_q3_k(std::byte* to, const std::byte* from);
// Half d, dmin; a word with the low nibbles of 8 scales, one with those of 8 minimums, one with the high pairs of both; nibbles.
void arrange_q4_k(std::byte* to, const std::byte* from);
void arrange_q5_k(std::byte* to, const std::byte* from);  // as Q4_K, with fifth bits before the nibbles
void arrange_q6_k(std::byte* to, const std::byte* from);  // low nibbles; high pairs; int8 scales[16]; half d
void arrange_tq2_0(std::byte* to, const std::byte* from); // pairs; half d
void arrange_q2_0(std::byte* to, const std::byte* from);  // half d; pairs
void arrange_nvfp4(std::byte* to, const std::byte* from); // nibbles; four bytes of scales

// Signs are single bits. If a file has seven of eight, the word has four other bits of the sub-block in the places of the eighth
// ones, bits 25 27 29 31: those of its scale, for IQ2_XS the high bits of its indices.
void arrange_iq2_xxs(std::byte* to, const std::byte* from); // half d; two words per sub-block: low bytes of indices; signs
void arrange_iq2_xs(std::byte* to, const std::byte* from);  // the same; 8 bytes of scales
// The same; per sub-block 16 bits: high pairs of indices, two scales.
void arrange_iq2_s(std::byte* to, const std::byte* from);
void arrange_iq3_xxs(std::byte* to, const std::byte* from); // half d; two words per sub-block: indices; words of signs
void arrange_iq3_s(std::byte* to, const std::byte* from);   // the same; 8 bytes of high bits; 4 bytes of scales
// Indices; high bits; half d; 48 bits: three of each run's scale.
void arrange_iq1_m(std::byte* to, const std::byte* from);

} // namespace tq
