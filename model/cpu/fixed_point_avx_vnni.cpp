// Integer products with AVX-VNNI, the instructions of AVX-512 VNNI in 256 bits that laptops and desktops have. Digits and sums
// are those of fixed_point_vnni.cpp, and so are all bits.
#include "model/cpu/fixed_point_half_registers.h"

#if HWY_ARCH_X86_64

#define TQ_AVX_VNNI_TARGET TQ_AVX2_TARGET ",avxvnni"
HWY_PUSH_ATTRIBUTES(TQ_AVX_VNNI_TARGET)
namespace tq::cpu::avx_vnni {

using namespace half_registers;
#include "model/cpu/fixed_point_formats-inl.h"

namespace {

constexpr int base_bits = 8;

template <class Format> struct Products {
    HWY_INLINE void add(size_t s, __m256i levels, const __m256i (&x)[digits]) {
        HWY_UNROLL(3)
        for (size_t d = 0; d < digits; d++)
            sums[d] = _mm256_dpbusd_avx_epi32(s == 0 ? _mm256_setzero_si256() : sums[d], levels, x[d]);
    }

    HWY_INLINE __m256 total(const float* factors) const {
        const __m256i first = less_offset<Format>(sums[0], factors + high_at);
        const __m256i high = _mm256_add_epi32(_mm256_slli_epi32(first, base_bits), sums[1]);
        const __m256i low = less_offset<Format>(sums[2], factors + low_at);
        return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(high, base_bits - 2), _mm256_srai_epi32(low, 2)));
    }

    __m256i sums[digits];
};

} // namespace

#include "model/cpu/fixed_point_half_registers-inl.h"

} // namespace tq::cpu::avx_vnni
HWY_POP_ATTRIBUTES
#endif
