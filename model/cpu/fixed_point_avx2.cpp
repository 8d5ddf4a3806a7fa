// Integer products with AVX2: digits are of base 128, so that sums of two products with unsigned bytes fit 16 bits, where they
// would saturate.
#include "model/cpu/fixed_point_half_registers.h"

#if HWY_ARCH_X86_64

HWY_PUSH_ATTRIBUTES(TQ_AVX2_TARGET)
namespace tq::cpu::avx2 {

using namespace half_registers;
#include "model/cpu/fixed_point_formats-inl.h"

namespace {

constexpr int base_bits = 7, base = 1 << base_bits;

// Hides a sum from the compiler: gcc would turn a chain of additions into a tree, whose parts do not fit into the registers.
HWY_INLINE void keep_order(__m256i& sum) {
#ifdef __GNUC__
    asm("" : "+x"(sum));
#else
    (void)sum;
#endif
}

// Sums of levels times each digit of 16 columns; each lane has those of its run. If levels have at most six bits, these are pairs
// of columns in words of 16 bits: four such sums fit, 8 * 63 * 64 < 2^15. Otherwise only one fits, 2 * 255 * 64, and sums have 32
// bits.
template <class Format> struct Products {
    static constexpr bool in_words = Format::level_bits <= 6;

    HWY_INLINE void add(size_t s, __m256i levels, const __m256i (&x)[digits]) {
        HWY_UNROLL(3)
        for (size_t d = 0; d < digits; d++) {
            __m256i pairs = _mm256_maddubs_epi16(levels, x[d]);
            if constexpr (!in_words) pairs = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            sums[d] = s == 0 ? pairs : in_words ? _mm256_add_epi16(sums[d], pairs) : _mm256_add_epi32(sums[d], pairs);
            keep_order(sums[d]);
        }
    }

    HWY_INLINE __m256 total(const float* factors) const {
        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(high(factors)), _mm256_set1_ps(base), _mm256_cvtepi32_ps(low(factors)));
    }

  private:
    // Return the sum of the first two digits, and of the last one.
    HWY_INLINE __m256i high(const float* factors) const {
        if constexpr (in_words)
            return less_offset<Format>(_mm256_add_epi32(_mm256_madd_epi16(sums[0], _mm256_set1_epi16(base)),
                                                        _mm256_madd_epi16(sums[1], _mm256_set1_epi16(1))),
                                       factors + high_at);
        return less_offset<Format>(_mm256_add_epi32(_mm256_slli_epi32(sums[0], base_bits), sums[1]), factors + high_at);
    }
    HWY_INLINE __m256i low(const float* factors) const {
        return less_offset<Format>(in_words ? _mm256_madd_epi16(sums[2], _mm256_set1_epi16(1)) : sums[2], factors + low_at);
    }

    __m256i sums[digits];
};

} // namespace

#include "model/cpu/fixed_point_half_registers-inl.h"

} // namespace tq::cpu::avx2
HWY_POP_ATTRIBUTES
#endif
