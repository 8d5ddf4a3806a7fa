// The vectors of fixed_point_formats-inl.h in AVX-512: 64 bytes, 16 numbers.
#pragma once
#include "model/cpu/fixed_point_runs.h"

#define TQ_VNNI_TARGET "sse2,ssse3,sse4.1,sse4.2,avx,avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni"
HWY_PUSH_ATTRIBUTES(TQ_VNNI_TARGET)
namespace tq::cpu::vnni {

using Ints = __m512i;
using Floats = __m512;

HWY_INLINE Ints bytes(int value) { return _mm512_set1_epi8(char(value)); }
HWY_INLINE Floats no_floats() { return _mm512_setzero_ps(); }
HWY_INLINE Floats load_floats(const float* p) { return _mm512_load_ps(p); }
HWY_INLINE Ints load_64(const uint8_t* p) { return _mm512_loadu_si512(p); }
HWY_INLINE Ints two_of_32(const uint8_t* p, const uint8_t* q) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(load_32(p)), load_32(q), 1);
}
HWY_INLINE Ints twice_32(const uint8_t* p) { return _mm512_broadcast_i64x4(load_32(p)); }
// Returns the bytes of eight numbers, of(0) first.
template <class Of> HWY_INLINE Ints eights(Of of) {
    return _mm512_set_epi64(int64_t(of(7)), int64_t(of(6)), int64_t(of(5)), int64_t(of(4)), int64_t(of(3)), int64_t(of(2)),
                            int64_t(of(1)), int64_t(of(0)));
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

// Returns v with the bytes whose bit is set negated.
HWY_INLINE Ints negative_where(Ints v, uint32_t lower, uint32_t upper) {
    return _mm512_mask_sub_epi8(v, lower | uint64_t(upper) << 32, _mm512_setzero_si512(), v);
}

HWY_INLINE Ints halves(int lower, int upper) { return _mm512_inserti64x4(_mm512_set1_epi32(lower), _mm256_set1_epi32(upper), 1); }

// Shift the words of 32 bits in each half by as much; to the left by a negative number is to the right.
HWY_INLINE Ints shift_right(Ints v, int lower, int upper) { return _mm512_srlv_epi32(v, halves(lower, upper)); }
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
