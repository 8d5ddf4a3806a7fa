// Integer products with AVX-512 VNNI: digits are signed bytes, of base 256, and levels unsigned ones.
#include <hwy/base.h>

#if HWY_ARCH_X86_64
#include "model/cpu/fixed_point_avx512.h"

HWY_PUSH_ATTRIBUTES(TQ_VNNI_TARGET)
namespace tq::cpu::vnni {

#include "model/cpu/fixed_point_formats-inl.h"

namespace {

constexpr size_t vector = 64; // bytes

// sums[rows] += levels times a digit of 16 columns, in each lane those of its run.
HWY_INLINE void add_products(Ints (&sums)[dots_rows], const Ints (&levels)[dots_rows][steps], const int8_t* x) {
    HWY_UNROLL(4)
    for (size_t s = 0; s < steps; s++) {
        const Ints digit = _mm512_load_si512(x + s * vector);
        HWY_UNROLL(4)
        for (size_t r = 0; r < dots_rows; r++) sums[r] = _mm512_dpbusd_epi32(sums[r], levels[r][s], digit);
    }
}

// Returns what makes levels signed: their offset times a sum of digits, to be added.
template <class Format> HWY_INLINE Ints offset(const float* sums) {
    if constexpr (Format::has_minimum)
        return _mm512_setzero_si512();
    else
        return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(_mm512_load_si512(sums), Format::offset_bits));
}

// With three digits d0, d1, d2 of base 256, a sum is 256 high + low, with high = 256 (levels . d0) + levels . d1 and low =
// levels . d2. The sums begin with the offsets of signed levels: that of d0 in high before its shift, that of 256 d1 + d2 in low.
// Adds the sums over a group for one token to total[rows]. Sums of levels times digits of 16 columns are exact.
template <class Format> HWY_INLINE void add_group(Floats* total, const Ints (&levels)[dots_rows][steps],
                                                  const Scales (&scales)[dots_rows], const int8_t* x, const float* factors) {
    Ints high[dots_rows], low[dots_rows];
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) {
        high[r] = offset<Format>(factors + high_at);
        low[r] = offset<Format>(factors + low_at);
    }
    add_products(high, levels, x);
    add_products(low, levels, x + 2 * group);
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) high[r] = _mm512_slli_epi32(high[r], 8);
    add_products(high, levels, x + group);
    const Floats scale = _mm512_load_ps(factors);
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) {
        // A quarter of 256 high + low is what fits.
        const Ints quarter = _mm512_add_epi32(_mm512_slli_epi32(high[r], 6), _mm512_srai_epi32(low[r], 2));
        const Floats sum = _mm512_cvtepi32_ps(quarter);
        if constexpr (Format::has_minimum)
            total[r] = _mm512_fmadd_ps(scales[r].minimum, _mm512_load_ps(factors + sums_at), total[r]);
        total[r] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scales[r].scale, scale), total[r]);
    }
}

// The levels of a block.
template <class Format> HWY_INLINE void load_steps(Ints (&levels)[steps], const uint8_t* block) {
    if constexpr (HasSteps<Format>)
        Format::steps_of(levels, block);
    else
        transpose(levels,
                  {Format::levels(block, 0), Format::levels(block, 1), Format::levels(block, 2), Format::levels(block, 3)});
}

// Loads 16 bytes at p, p + stride, ...
template <size_t stride> HWY_INLINE Ints four_of_16(const uint8_t* p) {
    Ints v = _mm512_castsi128_si512(load_16(p));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_16(p + stride));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_16(p + 2 * stride));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, load_16(p + 3 * stride));
}

// These two turn nibbles before they are unpacked, half as many.
template <class Format>
    requires HasNibbles<Format>
HWY_INLINE void load_steps(Ints (&levels)[steps], const uint8_t* block) {
    const uint8_t* const p = block + Format::nibbles_at;
    const Ints lower = four_of_16<Format::nibbles_stride>(p),
               upper = four_of_16<Format::nibbles_stride>(p + 4 * Format::nibbles_stride);
    const Ints word = _mm512_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24, 4, 12, 20, 28, 4, 12, 20, 28);
    const Ints shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    HWY_UNROLL(4)
    for (size_t s = 0; s < steps; s++) {
        const Ints packed = _mm512_permutex2var_epi32(lower, _mm512_add_epi32(word, _mm512_set1_epi32(int(s))), upper);
        levels[s] = Format::of_nibbles(low_bits(_mm512_srlv_epi32(packed, shift), 4));
    }
}

template <> HWY_INLINE void load_steps<Q4_K>(Ints (&levels)[steps], const uint8_t* block) {
    const Ints lower = load_64(block + 16), upper = load_64(block + 80);
    const Ints word = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 0, 8, 16, 24, 4, 12, 20, 28);
    HWY_UNROLL(4)
    for (size_t s = 0; s < steps; s++) {
        const Ints packed = _mm512_permutex2var_epi32(lower, _mm512_add_epi32(word, _mm512_set1_epi32(int(s))), upper);
        levels[s] = low_bits(shift_right(packed, 0, 4), 4);
    }
}

template <class Format> HWY_INLINE void add_blocks(Floats (*total)[dots_rows], const uint8_t* const (&blocks)[dots_rows],
                                                   const FixedPoint& x, size_t i, size_t first, size_t count, size_t cols) {
    Ints levels[dots_rows][steps];
    Scales scales[dots_rows];
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) {
        load_steps<Format>(levels[r], blocks[r]);
        scales[r] = Format::scales(blocks[r]);
        if (cols != group) keep_columns(scales[r], cols);
    }
    const size_t at = i * x.tokens + first;
    for (size_t t = 0; t < count; t++)
        add_group<Format>(total[t], levels, scales, x.digits + (at + t) * digits_of_group,
                          x.factors + (at + t) * factors_of_group);
}

HWY_INLINE __m256 lower(Floats v) { return _mm512_castps512_ps256(v); }
HWY_INLINE __m256 upper(Floats v) { return _mm512_extractf32x8_ps(v, 1); }

HWY_INLINE void store_total(float* sums, const Floats (&v)[dots_rows]) {
    store_sums(sums, sums_of_half_registers(lower(v[0]), lower(v[1]), lower(v[2]), lower(v[3])),
               sums_of_half_registers(upper(v[0]), upper(v[1]), upper(v[2]), upper(v[3])));
}

} // namespace

} // namespace tq::cpu::vnni
HWY_POP_ATTRIBUTES
#endif
