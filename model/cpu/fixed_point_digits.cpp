// Activations as fixed-point numbers, in digits of both bases: AVX2's 128, and VNNI's 256.
// Digits are made from the last to the first. Half a base is added before each shift, so a digit is the one nearest to 0, from
// -base / 2 to base / 2 - 1, and the rest is an exact multiple of the base. Without that, digits would be 0 to base - 1, and
// those of base 256 would not fit signed bytes. The first digit is the last rest.
#include "model/cpu/fixed_point_half_registers.h"

#if HWY_ARCH_X86_64

HWY_PUSH_ATTRIBUTES(TQ_AVX2_TARGET)
namespace tq::cpu {

using namespace half_registers;

namespace {

// Sums of numbers' digits over a run: of all digits but the last, of the last one, and of all.
struct DigitSums {
    __m256i high, low, all;
};

// A base has `bits`. `limit`: the greatest number whose three digits fit, and whose sums of 16 products with levels up to 255
// fit. total_scale: Products::total() is divided by it.
struct Base128 {
    static constexpr int bits = 7;
    static constexpr float limit = 1 << 20, total_scale = 1;

    static HWY_INLINE DigitSums sums(const __m256i (&of)[digits]) {
        const __m256i high = _mm256_add_epi32(_mm256_slli_epi32(of[0], bits), of[1]);
        return {high, of[2], _mm256_add_epi32(_mm256_slli_epi32(high, bits), of[2])};
    }
};

struct Base256 {
    static constexpr int bits = 8;
    static constexpr float limit = 2097000; // 4 * 2^31 / 16 / 255, less rounding
    static constexpr float total_scale = 4; // a quarter of the sum is what fits

    static HWY_INLINE DigitSums sums(const __m256i (&of)[digits]) {
        const __m256i low = _mm256_add_epi32(_mm256_slli_epi32(of[1], bits), of[2]);
        return {of[0], low, _mm256_add_epi32(_mm256_slli_epi32(of[0], 2 * bits), low)};
    }
};

// Splits 16 numbers into digits: the last two are at least -base / 2 and less than base / 2; the first fits by `limit`.
template <int base_bits> HWY_INLINE void split(int8_t* to, const float* x, float inverse_scale) {
    const __m256 by = _mm256_set1_ps(inverse_scale);
    constexpr int base = 1 << base_bits;
    const __m256i half = _mm256_set1_epi32(base / 2), mask = _mm256_set1_epi32(base - 1);
    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), by));
    __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), by));
    for (size_t digit = digits; digit-- > 0;) {
        const __m256i up_a = _mm256_add_epi32(a, half), up_b = _mm256_add_epi32(b, half);
        const bool last = digit == 0;
        const __m256i digit_a = last ? a : _mm256_sub_epi32(_mm256_and_si256(up_a, mask), half);
        const __m256i digit_b = last ? b : _mm256_sub_epi32(_mm256_and_si256(up_b, mask), half);
        const __m256i in_words = _mm256_permute4x64_epi64(_mm256_packs_epi32(digit_a, digit_b), _MM_SHUFFLE(3, 1, 2, 0));
        const __m128i in_bytes = _mm_packs_epi16(_mm256_castsi256_si128(in_words), _mm256_extracti128_si256(in_words, 1));
        _mm_store_si128(reinterpret_cast<__m128i*>(to + digit * group), in_bytes);
        a = _mm256_srai_epi32(up_a, base_bits);
        b = _mm256_srai_epi32(up_b, base_bits);
    }
}

// Stores half of a digit of a group in steps, and returns its sums over runs.
HWY_INLINE __m256i store_digit(int8_t* to, const int8_t* in_order) {
    __m256i columns[steps], sum = _mm256_setzero_si256();
    transpose(columns, load_bytes(in_order), load_bytes(in_order + 64), load_bytes(in_order + 128), load_bytes(in_order + 192));
    for (size_t s = 0; s < steps; s++) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + 64 * s), columns[s]);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), columns[s]);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return sum;
}

template <class Base> HWY_INLINE void convert_group(int8_t* to, float* factors, const float* x) {
    alignas(32) int8_t in_order[digits_of_group];
    alignas(32) float inverse[16];
    find_scales(factors, inverse, x, Base::limit);
    for (size_t lane = 0; lane < 16; lane++)
        split<Base::bits>(in_order + 16 * run_of(lane), x + 16 * run_of(lane), inverse[lane]);
    for (size_t half = 0; half < 2; half++) {
        __m256i sums[digits];
        for (size_t d = 0; d < digits; d++) sums[d] = store_digit(to + d * group + half * 32, in_order + d * group + half * 32);
        const DigitSums of = Base::sums(sums);
        float* const of_half = factors + 8 * half;
        const __m256 scales = _mm256_load_ps(of_half);
        _mm256_store_ps(of_half, _mm256_mul_ps(scales, _mm256_set1_ps(Base::total_scale)));
        _mm256_store_ps(of_half + sums_at, _mm256_mul_ps(_mm256_cvtepi32_ps(of.all), scales));
        _mm256_store_si256(reinterpret_cast<__m256i*>(of_half + high_at), of.high);
        _mm256_store_si256(reinterpret_cast<__m256i*>(of_half + low_at), of.low);
    }
}

} // namespace

void convert_group_128(int8_t* digits, float* factors, const float* x) { convert_group<Base128>(digits, factors, x); }
void convert_group_256(int8_t* digits, float* factors, const float* x) { convert_group<Base256>(digits, factors, x); }

} // namespace tq::cpu
HWY_POP_ATTRIBUTES
#endif
