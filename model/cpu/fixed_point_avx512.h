// The vectors of fixed_point_formats-inl.h in AVX-512: 64 bytes, 16 numbers.
#pragma once
#include "model/cpu/fixed_point_runs.h"

#define TQ_VNNI_TARGET "sse2,ssse3,sse4.1,sse4.2,avx,avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni"
HWY_PUSH_ATTRIBUTES(TQ_VNNI_TARGET)
namespace tq::cpu::vnni {

using Ints = __m512i;
using Floats = __m512;

// Takes four fp16 numbers at p, p + stride, ... out of two loads, which end with the byte before p + 4 stride - 2. That is a
// third of the instructions of loads one by one, which took a sixth of a token's time.
template <size_t stride> HWY_INLINE __m128i four_fp16(const uint8_t* p) {
    constexpr size_t second = std::min<size_t>(64, 4 * stride - 66); // byte where the second load begins
    const auto word = [](size_t i) { return short(i * stride + 2 <= 64 ? i * stride / 2 : 32 + (i * stride - second) / 2); };
    static_assert(stride % 2 == 0 && 2 * stride + 2 <= second + 64 && 3 * stride + 2 <= second + 64);
    const Ints words = _mm512_castsi128_si512(_mm_setr_epi16(word(0), word(1), word(2), word(3), 0, 0, 0, 0));
    return _mm512_castsi512_si128(_mm512_permutex2var_epi16(_mm512_loadu_si512(p), words, _mm512_loadu_si512(p + second)));
}

// Loads the fp16 numbers at p, p + stride, ... of a group of 256 columns.
template <size_t stride> HWY_INLINE __m256 eight_fp16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(four_fp16<stride>(p), four_fp16<stride>(p + 4 * stride)));
}

HWY_INLINE Ints bytes(int value) { return _mm512_set1_epi8(char(value)); }
HWY_INLINE Floats no_floats() { return _mm512_setzero_ps(); }
HWY_INLINE Floats joined(__m256 lower, __m256 upper) { return _mm512_insertf32x8(_mm512_castps256_ps512(lower), upper, 1); }
HWY_INLINE Ints load_64(const uint8_t* p) { return _mm512_loadu_si512(p); }
HWY_INLINE Ints two_of_32(const uint8_t* p, const uint8_t* q) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(load_32(p)), load_32(q), 1);
}
HWY_INLINE Ints twice_32(const uint8_t* p) { return _mm512_broadcast_i64x4(load_32(p)); }
// Returns a word of 32 bits for each lane.
template <class Of> HWY_INLINE Ints words(Of of) {
    const __m256i lower = _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(of, 0)), four_words(of, 4), 1);
    const __m256i upper = _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(of, 8)), four_words(of, 12), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
}
HWY_INLINE Ints add_bytes(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
HWY_INLINE Ints exclusive_or(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
HWY_INLINE Ints low_bits(Ints v, int bits) { return _mm512_and_si512(v, bytes((1 << bits) - 1)); }

// Returns v with the bits of `mask` in h added.
HWY_INLINE Ints with_bits(Ints v, Ints h, int mask) { return _mm512_ternarylogic_epi32(v, h, bytes(mask), 0xf8); }

// Returns v with `value` added to the bytes whose bit is set.
HWY_INLINE Ints add_where(Ints v, uint32_t lower, uint32_t upper, int value) {
    return _mm512_mask_add_epi8(v, lower | uint64_t(upper) << 32, v, bytes(value));
}

// Gives byte i of each lane's word to all four.
HWY_INLINE Ints each_byte(Ints v, int i) { return _mm512_shuffle_epi8(v, _mm512_broadcast_i64x4(bytes_of_lanes(i))); }

// Bytes in the order of lanes, as words.
HWY_INLINE Ints words_of_bytes(__m128i v) { return _mm512_cvtepu8_epi32(v); }

// Returns v with the bytes whose bit is set in a lane's word negated: bit 4 s of the first byte.
HWY_INLINE Ints negative_where(Ints v, Ints bits, size_t s) {
    const Ints byte = each_byte(bits, int(s / 2));
    const Ints bit = _mm512_set1_epi32(s % 2 == 0 ? 0x08040201 : int(0x80402010));
    return _mm512_mask_sub_epi8(v, _mm512_test_epi8_mask(byte, bit), _mm512_setzero_si512(), v);
}

HWY_INLINE Ints halves(int lower, int upper) { return _mm512_inserti64x4(_mm512_set1_epi32(lower), _mm256_set1_epi32(upper), 1); }

// Shift the words of 32 bits in each half by as much; to the left by a negative number is to the right.
HWY_INLINE Ints shift_right(Ints v, int lower, int upper) { return _mm512_srlv_epi32(v, halves(lower, upper)); }
HWY_INLINE Ints shift_right(Ints v, int by) { return _mm512_srli_epi32(v, unsigned(by)); }
HWY_INLINE Ints shift_left(Ints v, int lower, int upper) { return _mm512_rolv_epi32(v, halves(lower & 31, upper & 31)); }

// Unpacks 32 bytes of nibbles: the low ones, then the high ones.
HWY_INLINE Ints nibbles_of_32(const uint8_t* p) { return low_bits(shift_right(twice_32(p), 0, 4), 4); }

// Unpacks 16 bytes of nibbles, the low ones, then the high ones, and 16 others in the same way.
HWY_INLINE Ints nibbles_of_16(const uint8_t* p, const uint8_t* q) {
    const Ints both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(p)), 0xff00, load_16(q));
    return low_bits(_mm512_srlv_epi32(both, _mm512_broadcast_i64x4(_mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4))), 4);
}

// Unpacks 32 bytes of nibbles, of each eight the low ones, then the high ones.
HWY_INLINE Ints nibbles_of_eights(const uint8_t* p) {
    const Ints twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_castsi256_si512(load_32(p)));
    return low_bits(_mm512_srlv_epi64(twice, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4)), 4);
}

// Looks up levels in a table of 16 signed bytes, and adds `offset`.
HWY_INLINE Ints in_table(Ints nibbles, __m128i table, int offset) {
    return _mm512_shuffle_epi8(_mm512_add_epi8(_mm512_broadcast_i32x4(table), bytes(offset)), nibbles);
}

// Turns vectors of consecutive bytes into steps of four columns: step s has columns 4 s .. 4 s + 3 of every run.
HWY_INLINE void transpose(Ints (&steps)[4], const Ints (&v)[4]) {
    const Ints low01 = _mm512_unpacklo_epi32(v[0], v[1]), high01 = _mm512_unpackhi_epi32(v[0], v[1]);
    const Ints low23 = _mm512_unpacklo_epi32(v[2], v[3]), high23 = _mm512_unpackhi_epi32(v[2], v[3]);
    steps[0] = _mm512_unpacklo_epi64(low01, low23);
    steps[1] = _mm512_unpackhi_epi64(low01, low23);
    steps[2] = _mm512_unpacklo_epi64(high01, high23);
    steps[3] = _mm512_unpackhi_epi64(high01, high23);
}

HWY_INLINE Ints runs() { return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); } // of lanes

// Gives each of eight numbers, of runs of 32 columns, to the two runs of 16.
HWY_INLINE Floats pairs_of_runs(__m256 v) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(runs(), 1), _mm512_castps256_ps512(v));
}

// Gives each of eight words, of pairs of runs, to both, and shifts that of the second right.
HWY_INLINE Ints words_of_pairs(__m256i v, int second) {
    const Ints both = _mm512_castps_si512(pairs_of_runs(_mm256_castsi256_ps(v)));
    return _mm512_mask_srli_epi32(both, 0xf0f0, both, unsigned(second));
}

// Makes zeros of the numbers of other runs than the first `count`.
HWY_INLINE Floats first_runs(Floats v, size_t count) {
    return _mm512_maskz_mov_ps(_mm512_cmplt_epi32_mask(runs(), _mm512_set1_epi32(int(count))), v);
}

// Returns bytes in the order of runs as numbers times d.
HWY_INLINE Floats unsigned_times(__m128i v, float d) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v)), _mm512_set1_ps(d));
}
HWY_INLINE Floats signed_times(__m128i v, float d) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)), _mm512_set1_ps(d));
}

} // namespace tq::cpu::vnni
HWY_POP_ATTRIBUTES
