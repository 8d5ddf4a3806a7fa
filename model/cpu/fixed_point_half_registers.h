// The vectors of fixed_point_formats-inl.h in registers of 256 bits: each is two of them.
#pragma once
#include <hwy/base.h>

#if HWY_ARCH_X86_64
#include "model/cpu/fixed_point_runs.h"

#define TQ_AVX2_TARGET "sse2,ssse3,sse4.1,sse4.2,avx,avx2,fma,f16c"
HWY_PUSH_ATTRIBUTES(TQ_AVX2_TARGET)
namespace tq::cpu::half_registers {

struct Ints {
    __m256i lower, upper;
};
struct Floats {
    __m256 lower, upper;
};

HWY_INLINE __m256i load_bytes(const int8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
HWY_INLINE __m256i load_sums(const float* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// Returns a sum over signed levels, which unsigned ones stand for: less their offset times the sum of the digits.
template <class Format> HWY_INLINE __m256i less_offset(__m256i sum, const float* of_digits) {
    if constexpr (Format::has_minimum)
        return sum;
    else
        return _mm256_sub_epi32(sum, _mm256_slli_epi32(load_sums(of_digits), Format::offset_bits));
}

// Loads the fp16 numbers at p, p + stride, ... through integer registers, since a gather takes longer.
template <size_t stride> HWY_INLINE __m256 eight_fp16(const uint8_t* p) {
    uint64_t packed[2] = {};
    for (size_t i = 0; i < 8; i++) {
        uint16_t half;
        std::memcpy(&half, p + i * stride, 2);
        packed[i / 4] |= uint64_t(half) << 16 * (i % 4);
    }
    return _mm256_cvtph_ps(_mm_set_epi64x(int64_t(packed[1]), int64_t(packed[0])));
}

HWY_INLINE Ints twice(__m256i v) { return {v, v}; }
HWY_INLINE Ints bytes(int value) { return twice(_mm256_set1_epi8(char(value))); }
HWY_INLINE Floats no_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HWY_INLINE Floats joined(__m256 lower, __m256 upper) { return {lower, upper}; }
HWY_INLINE Ints load_64(const uint8_t* p) { return {load_32(p), load_32(p + 32)}; }
HWY_INLINE Ints two_of_32(const uint8_t* p, const uint8_t* q) { return {load_32(p), load_32(q)}; }
HWY_INLINE Ints twice_32(const uint8_t* p) { return twice(load_32(p)); }
// Returns a word of 32 bits for each lane.
template <class Of> HWY_INLINE Ints words(Of of) {
    return {_mm256_inserti128_si256(_mm256_castsi128_si256(four_words(of, 0)), four_words(of, 4), 1),
            _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(of, 8)), four_words(of, 12), 1)};
}
HWY_INLINE Ints add_bytes(Ints a, Ints b) { return {_mm256_add_epi8(a.lower, b.lower), _mm256_add_epi8(a.upper, b.upper)}; }
HWY_INLINE Ints exclusive_or(Ints a, Ints b) { return {_mm256_xor_si256(a.lower, b.lower), _mm256_xor_si256(a.upper, b.upper)}; }
HWY_INLINE Ints both(Ints a, Ints b) { return {_mm256_and_si256(a.lower, b.lower), _mm256_and_si256(a.upper, b.upper)}; }
HWY_INLINE Ints low_bits(Ints v, int bits) { return both(v, bytes((1 << bits) - 1)); }

// Returns v with the bits of `mask` in h added.
HWY_INLINE Ints with_bits(Ints v, Ints h, int mask) {
    const Ints bits = both(h, bytes(mask));
    return {_mm256_or_si256(v.lower, bits.lower), _mm256_or_si256(v.upper, bits.upper)};
}

// Returns all bits of the bytes whose bit is set.
HWY_INLINE __m256i where(uint32_t bits) {
    const __m256i of_byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(int(bits)), of_byte), bit), bit);
}

// Returns v with `value` added to the bytes whose bit is set.
HWY_INLINE __m256i add_where(__m256i v, uint32_t bits, int value) {
    return _mm256_add_epi8(v, _mm256_and_si256(where(bits), _mm256_set1_epi8(char(value))));
}
HWY_INLINE Ints add_where(Ints v, uint32_t lower, uint32_t upper, int value) {
    return {add_where(v.lower, lower, value), add_where(v.upper, upper, value)};
}

// Gives byte i of each lane's word to all four.
HWY_INLINE Ints each_byte(Ints v, int i) {
    return {_mm256_shuffle_epi8(v.lower, bytes_of_lanes(i)), _mm256_shuffle_epi8(v.upper, bytes_of_lanes(i))};
}

// Bytes in the order of lanes, as words.
HWY_INLINE Ints words_of_bytes(__m128i v) { return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))}; }

// Returns v with the bytes whose bit is set in a lane's word negated: bit 4 s of the first byte.
HWY_INLINE __m256i negative_where(__m256i v, __m256i byte, size_t s) {
    const __m256i bit = _mm256_set1_epi32(s % 2 == 0 ? 0x08040201 : int(0x80402010));
    const __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit);
    return _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask);
}
HWY_INLINE Ints negative_where(Ints v, Ints bits, size_t s) {
    const Ints byte = each_byte(bits, int(s / 2));
    return {negative_where(v.lower, byte.lower, s), negative_where(v.upper, byte.upper, s)};
}

// Shift the words of 32 bits in each half by as much; to the left by a negative number is to the right.
HWY_INLINE __m256i shift_left(__m256i v, int by) {
    return by == 0 ? v : by < 0 ? _mm256_srli_epi32(v, -by) : _mm256_slli_epi32(v, by);
}
HWY_INLINE Ints shift_left(Ints v, int lower, int upper) { return {shift_left(v.lower, lower), shift_left(v.upper, upper)}; }
HWY_INLINE Ints shift_right(Ints v, int by) { return shift_left(v, -by, -by); }
HWY_INLINE Ints shift_right(Ints v, int lower, int upper) { return shift_left(v, -lower, -upper); }

// Unpacks 32 bytes of nibbles: the low ones, then the high ones.
HWY_INLINE Ints nibbles_of_32(const uint8_t* p) { return low_bits(shift_right(twice_32(p), 0, 4), 4); }

// Unpacks 16 bytes of nibbles, the low ones, then the high ones, and 16 others in the same way.
HWY_INLINE Ints nibbles_of_16(const uint8_t* p, const uint8_t* q) {
    const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    return low_bits({_mm256_srlv_epi32(_mm256_broadcastsi128_si256(load_16(p)), shifts),
                     _mm256_srlv_epi32(_mm256_broadcastsi128_si256(load_16(q)), shifts)},
                    4);
}

// Unpacks 32 bytes of nibbles, of each eight the low ones, then the high ones.
HWY_INLINE Ints nibbles_of_eights(const uint8_t* p) {
    const __m256i bytes = load_32(p), shifts = _mm256_setr_epi64x(0, 4, 0, 4);
    return low_bits({_mm256_srlv_epi64(_mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(1, 1, 0, 0)), shifts),
                     _mm256_srlv_epi64(_mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 3, 2, 2)), shifts)},
                    4);
}

// Looks up levels in a table of 16 signed bytes, and adds `offset`.
HWY_INLINE Ints in_table(Ints nibbles, __m128i table, int offset) {
    const __m256i levels = _mm256_add_epi8(_mm256_broadcastsi128_si256(table), _mm256_set1_epi8(char(offset)));
    return {_mm256_shuffle_epi8(levels, nibbles.lower), _mm256_shuffle_epi8(levels, nibbles.upper)};
}

// Turns vectors of consecutive bytes into steps of four columns: step s has columns 4 s .. 4 s + 3 of every run, those of a
// lower half of 16 bytes in the lower lanes.
HWY_INLINE void transpose(__m256i (&steps)[4], __m256i v0, __m256i v1, __m256i v2, __m256i v3) {
    const __m256i low01 = _mm256_unpacklo_epi32(v0, v1), high01 = _mm256_unpackhi_epi32(v0, v1);
    const __m256i low23 = _mm256_unpacklo_epi32(v2, v3), high23 = _mm256_unpackhi_epi32(v2, v3);
    steps[0] = _mm256_unpacklo_epi64(low01, low23);
    steps[1] = _mm256_unpackhi_epi64(low01, low23);
    steps[2] = _mm256_unpacklo_epi64(high01, high23);
    steps[3] = _mm256_unpackhi_epi64(high01, high23);
}

// Gives each of eight numbers, of runs of 32 columns, to the two runs of 16.
HWY_INLINE Floats pairs_of_runs(__m256 v) {
    return {_mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)),
            _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7))};
}

// Gives each of eight words, of pairs of runs, to both, and shifts that of the second right.
HWY_INLINE Ints words_of_pairs(__m256i v, int second) {
    const Floats both = pairs_of_runs(_mm256_castsi256_ps(v));
    const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, second, second, second, second);
    return {_mm256_srlv_epi32(_mm256_castps_si256(both.lower), shifts),
            _mm256_srlv_epi32(_mm256_castps_si256(both.upper), shifts)};
}

// Makes zeros of the numbers of other runs than the first `count`.
HWY_INLINE __m256 first_runs(__m256 v, __m256i runs, size_t count) {
    return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), runs)));
}
HWY_INLINE Floats first_runs(Floats v, size_t count) {
    return {first_runs(v.lower, _mm256_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13), count),
            first_runs(v.upper, _mm256_setr_epi32(2, 6, 10, 14, 3, 7, 11, 15), count)};
}

// Returns bytes in the order of runs as numbers times d.
HWY_INLINE __m256 times(__m256i v, float d) { return _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(d)); }
HWY_INLINE Floats unsigned_times(__m128i v, float d) {
    return {times(_mm256_cvtepu8_epi32(v), d), times(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)), d)};
}
HWY_INLINE Floats signed_times(__m128i v, float d) {
    return {times(_mm256_cvtepi8_epi32(v), d), times(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)), d)};
}

} // namespace tq::cpu::half_registers
HWY_POP_ATTRIBUTES
#endif
