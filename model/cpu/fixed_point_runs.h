// Code that the integer products of all instruction sets share: loads, and the order of runs. Runs of 16 columns, 16 of them in a
// group of 256, are in lanes in the order in which a transposition of 4 x 4 words leaves them: lane l has run 4 (l % 4) + l / 4.
#pragma once
#include "model/cpu/fixed_point.h"
#include "model/cpu/intrinsics.h"
#include "model/files/formats/block_reader.h"
#include "model/files/formats/blocks_iq.h"
#include <cstring>
#include <hwy/base.h>

HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,avx,avx2,f16c")
namespace tq::cpu {

inline constexpr size_t group = 256;           // columns
inline constexpr size_t digits = 3, steps = 4; // of a number, and of four columns of each run
inline constexpr size_t digits_of_group = digits * group, factors_of_group = 64;
inline constexpr size_t sums_at = 16, high_at = 32, low_at = 48; // of the factors after the scales
inline constexpr size_t prefetched_rows = 2 * dots_rows;         // those of the call after the next

constexpr size_t run_of(size_t lane) { return lane % 4 * 4 + lane / 4; }

HWY_INLINE __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
HWY_INLINE __m256i load_32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Puts a byte for each run of 16 columns into the order of lanes.
HWY_INLINE __m128i in_run_order(__m128i v) {
    return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

// The words of four lanes from `first` on. Wider vectors are put together of these, as gcc sends more through memory.
template <class Of> HWY_INLINE __m128i four_words(Of of, size_t first) {
    return _mm_setr_epi32(int(of(first)), int(of(first + 1)), int(of(first + 2)), int(of(first + 3)));
}

// For a shuffle: gives byte i of each lane's word to all four of its bytes.
HWY_INLINE __m256i bytes_of_lanes(int i) {
    const __m256i first =
        _mm256_setr_epi32(0x00000000, 0x04040404, 0x08080808, 0x0c0c0c0c, 0x00000000, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_add_epi8(first, _mm256_set1_epi8(char(i)));
}

HWY_INLINE float half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, 2);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

HWY_INLINE uint32_t word_at(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, 4);
    return word;
}

// Loads the bytes at p, p + stride, ...
template <size_t stride> HWY_INLINE __m128i eight_bytes(const uint8_t* p) {
    uint64_t packed = 0;
    for (size_t i = 0; i < 8; i++) packed |= uint64_t(p[i * stride]) << 8 * i;
    return _mm_cvtsi64_si128(int64_t(packed));
}

// Scales of eight bytes as mxfp4_scale() and nvfp4_scale() have them (model/files/formats/block_reader.h), bit for bit.
HWY_INLINE __m256 mxfp4_scales(__m128i bytes) {
    const __m256i e = _mm256_cvtepu8_epi32(bytes), small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    const __m256i of_small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e); // subnormal
    const __m256i others = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i nan = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255));
    const __m256i scale = _mm256_blendv_epi8(others, of_small, small);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(scale, _mm256_set1_epi32(0x7fc00000), nan));
}
HWY_INLINE __m256 nvfp4_scales(__m128i bytes) {
    const __m128i number =
        _mm_andnot_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)), _mm_and_si128(bytes, _mm_set1_epi8(0x7f)));
    const __m128i fp16 = _mm_slli_epi16(_mm_cvtepu8_epi16(number), 7); // of the same fraction, whose exponent is 7 less
    return _mm256_mul_ps(_mm256_cvtph_ps(fp16), _mm256_set1_ps(0x1p7f));
}

HWY_INLINE __m256 to_floats(__m128i eight_bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes)); }

// Prefetches `count` bytes that lie `distance` bytes after p into the L2 cache, which has more misses in flight than the L1:
// after the last row there may be other memory, or none.
template <size_t count> HWY_INLINE void prefetch(const uint8_t* p, size_t distance) {
    const auto address = reinterpret_cast<uintptr_t>(p) + distance; // a pointer there may be out of range
    for (size_t at = 0; at < count; at += 64) _mm_prefetch(reinterpret_cast<const char*>(address + at), _MM_HINT_T1);
}

// Returns the greatest magnitude of 16 numbers as bits, whose order is that of the numbers; NaN is the greatest.
HWY_INLINE int32_t max_magnitude(const float* x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256i a = _mm256_castps_si256(_mm256_andnot_ps(sign, _mm256_loadu_ps(x)));
    const __m256i b = _mm256_max_epi32(a, _mm256_castps_si256(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + 8))));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1))));
}

// scales[16] and their inverses, of runs in the order of lanes, for numbers that are at most `limit`.
HWY_INLINE void find_scales(float* scales, float* inverse, const float* x, float limit) {
    constexpr float min_scale = 1e-37f; // its inverse is finite
    alignas(32) int32_t max_magnitudes[16];
    for (size_t lane = 0; lane < 16; lane++) max_magnitudes[lane] = max_magnitude(x + 16 * run_of(lane));
    for (size_t lane = 0; lane < 16; lane += 8) {
        const __m256 sizes = _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(max_magnitudes + lane)));
        const __m256 scale = _mm256_max_ps(_mm256_set1_ps(min_scale), _mm256_div_ps(sizes, _mm256_set1_ps(limit))); // NaN stays
        _mm256_store_ps(scales + lane, scale);
        _mm256_store_ps(inverse + lane, _mm256_div_ps(_mm256_set1_ps(1), scale));
    }
}

// sums[4] = the sums of the lanes of four vectors, in an order that all instruction sets have.
HWY_INLINE __m256 sums_of_half_registers(__m256 v0, __m256 v1, __m256 v2, __m256 v3) {
    const __m256 a = _mm256_add_ps(_mm256_unpacklo_ps(v0, v1), _mm256_unpackhi_ps(v0, v1));
    const __m256 b = _mm256_add_ps(_mm256_unpacklo_ps(v2, v3), _mm256_unpackhi_ps(v2, v3));
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
HWY_INLINE void store_sums(float* sums, __m256 lower, __m256 upper) {
    const __m256 both = _mm256_add_ps(lower, upper);
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1)));
}

// The last blocks of rows that have fewer than 256 columns there, for formats with blocks of 32: those bytes and what follows
// them in memory, or a copy filled with zeros if nothing follows. Columns past the end are multiplied by zeros, and their scales
// are taken for zeros.
template <class Format> struct RowEnds {
    uint8_t copies[dots_rows][Format::bytes_of_256];
    const uint8_t* blocks[dots_rows];

    // Rows have `cols` columns from the byte `at` on; `end` is the end of the rows' memory.
    HWY_INLINE RowEnds(const uint8_t* const* rows, size_t at, size_t cols, const uint8_t* end) {
        for (size_t r = 0; r < dots_rows; r++) {
            blocks[r] = rows[r] + at;
            if (size_t(end - blocks[r]) >= Format::bytes_of_256) continue;
            std::memset(copies[r], 0, Format::bytes_of_256);
            std::memcpy(copies[r], blocks[r], cols * Format::bytes_of_256 / group);
            blocks[r] = copies[r];
        }
    }
};

} // namespace tq::cpu
HWY_POP_ATTRIBUTES

// The kernels of each instruction set: sums[count][dots_rows] as dots(); nullptr if a format has none.
namespace tq::cpu {

using Dots = void(float* sums, const uint8_t* const* rows, const uint8_t* end, const FixedPoint& x, size_t first, size_t count);

namespace avx2 {
Dots* dots_for(GgmlType type);
}
namespace avx_vnni {
Dots* dots_for(GgmlType type);
}
namespace vnni {
Dots* dots_for(GgmlType type);
}

// Makes the digits, of that base, and factors of 256 columns x of a token (FixedPoint).
void convert_group_128(int8_t* digits, float* factors, const float* x);
void convert_group_256(int8_t* digits, float* factors, const float* x);

} // namespace tq::cpu
