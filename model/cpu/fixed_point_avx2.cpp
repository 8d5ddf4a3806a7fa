// Integer products with AVX2: digits are of base 128, so that sums of two products with unsigned bytes fit 16 bits, where they
// would saturate.
#include "model/cpu/fixed_point_avx2.h"

#if HWY_ARCH_X86_64

HWY_PUSH_ATTRIBUTES(TQ_AVX2_TARGET)
namespace tq::cpu::avx2 {

#include "model/cpu/fixed_point_formats-inl.h"

namespace {

constexpr int base_bits = 7, base = 1 << base_bits;

using Levels = __m256i[2][steps]; // of the lower lanes and of the upper ones

// Hides from the compiler that what a loop multiplies stays the same: it would copy it to the stack, as there are too few
// registers.
HWY_INLINE void keep_in_memory() {
#ifdef __GNUC__
    asm volatile("" : : : "memory");
#endif
}

// Hides a sum from the compiler: gcc would turn a chain of additions into a tree, whose parts do not fit into the registers.
HWY_INLINE void keep_order(__m256i& sum) {
#ifdef __GNUC__
    asm("" : "+x"(sum));
#else
    (void)sum;
#endif
}

// The levels of a block.
template <class Format> HWY_INLINE void load_steps(Levels& levels, const uint8_t* block) {
    const Ints a = Format::levels(block, 0), b = Format::levels(block, 1), c = Format::levels(block, 2),
               d = Format::levels(block, 3);
    transpose(levels[0], a.lower, b.lower, c.lower, d.lower);
    transpose(levels[1], a.upper, b.upper, c.upper, d.upper);
}

// Turns nibbles before they are unpacked, half as many: the low ones are those of the lower lanes.
template <> HWY_INLINE void load_steps<Q4_K>(Levels& levels, const uint8_t* block) {
    __m256i packed[4];
    transpose(packed, load_32(block + 16), load_32(block + 48), load_32(block + 80), load_32(block + 112));
    HWY_UNROLL(4)
    for (size_t s = 0; s < 4; s++) {
        levels[0][s] = _mm256_and_si256(packed[s], _mm256_set1_epi8(15));
        levels[1][s] = _mm256_and_si256(_mm256_srli_epi16(packed[s], 4), _mm256_set1_epi8(15));
    }
}

HWY_INLINE __m256i load_bytes(const int8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
HWY_INLINE __m256i load_sums(const float* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// The sums of levels times each digit of 16 columns, in each lane those of its run: of pairs of columns in words of 16 bits,
// where levels have at most six bits, so that four such sums fit, 8 * 63 * 64 < 2^15; else one, 2 * 255 * 64, and sums are of 32
// bits.
template <class Format> struct Products {
    static constexpr bool in_words = Format::level_bits <= 6;
    __m256i sums[digits];

    HWY_INLINE void add(size_t s, __m256i levels, const __m256i (&x)[digits]) {
        HWY_UNROLL(3)
        for (size_t d = 0; d < digits; d++) {
            __m256i pairs = _mm256_maddubs_epi16(levels, x[d]);
            if constexpr (!in_words) pairs = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            sums[d] = s == 0 ? pairs : in_words ? _mm256_add_epi16(sums[d], pairs) : _mm256_add_epi32(sums[d], pairs);
            keep_order(sums[d]);
        }
    }

    // Returns the sums of levels times the first two digits, or times the last one, less those of the offset of signed levels.
    HWY_INLINE __m256i high(const float* factors) const {
        if constexpr (in_words)
            return less_offset(_mm256_add_epi32(_mm256_madd_epi16(sums[0], _mm256_set1_epi16(base)),
                                                _mm256_madd_epi16(sums[1], _mm256_set1_epi16(1))),
                               factors + high_at);
        return less_offset(_mm256_add_epi32(_mm256_slli_epi32(sums[0], base_bits), sums[1]), factors + high_at);
    }
    HWY_INLINE __m256i low(const float* factors) const {
        return less_offset(in_words ? _mm256_madd_epi16(sums[2], _mm256_set1_epi16(1)) : sums[2], factors + low_at);
    }
    static HWY_INLINE __m256i less_offset(__m256i sum, const float* of_digits) {
        if constexpr (Format::has_minimum)
            return sum;
        else
            return _mm256_sub_epi32(sum, _mm256_slli_epi32(load_sums(of_digits), Format::offset_bits));
    }
};

// Adds the sums over half of the lanes of a group, which are exact, for one token and `rows` rows.
template <class Format, size_t rows, size_t half> HWY_INLINE void add_half(Floats* total, const Levels* const (&levels)[rows],
                                                                           const Scales* const (&scales)[rows], const int8_t* x,
                                                                           const float* factors) {
    Products<Format> products[rows];
    HWY_UNROLL(4)
    for (size_t s = 0; s < steps; s++) {
        __m256i of_step[digits];
        HWY_UNROLL(3)
        for (size_t d = 0; d < digits; d++) of_step[d] = load_bytes(x + d * group + s * 64 + half * 32);
        HWY_UNROLL(2)
        for (size_t r = 0; r < rows; r++) products[r].add(s, (*levels[r])[half][s], of_step);
    }
    factors += 8 * half;
    const __m256 x_scale = _mm256_load_ps(factors), x_sum = _mm256_load_ps(factors + sums_at);
    HWY_UNROLL(2)
    for (size_t r = 0; r < rows; r++) {
        __m256& of_row = half == 0 ? total[r].lower : total[r].upper;
        const __m256 scale = half == 0 ? scales[r]->scale.lower : scales[r]->scale.upper;
        const __m256 high = _mm256_cvtepi32_ps(products[r].high(factors)), low = _mm256_cvtepi32_ps(products[r].low(factors));
        const __m256 sum = _mm256_fmadd_ps(high, _mm256_set1_ps(base), low);
        if constexpr (Format::has_minimum)
            of_row = _mm256_fmadd_ps(half == 0 ? scales[r]->minimum.lower : scales[r]->minimum.upper, x_sum, of_row);
        of_row = _mm256_fmadd_ps(sum, _mm256_mul_ps(scale, x_scale), of_row);
    }
}

template <class Format, size_t rows> HWY_INLINE void add_rows(Floats* total, const Levels* const (&levels)[rows],
                                                              const Scales* const (&scales)[rows], const int8_t* x,
                                                              const float* factors) {
    add_half<Format, rows, 0>(total, levels, scales, x, factors);
    add_half<Format, rows, 1>(total, levels, scales, x, factors);
}

// The levels of a block in memory, for several tokens.
struct Block {
    Levels levels;
    Scales scales;
};

template <class Format> HWY_INLINE void add_blocks(Floats (*total)[dots_rows], const uint8_t* const (&blocks)[dots_rows],
                                                   const FixedPoint& x, size_t i, size_t first, size_t count, size_t cols) {
    const int8_t* of_token = x.digits + (i * x.tokens + first) * digits_of_group;
    const float* factors = x.factors + (i * x.tokens + first) * factors_of_group;
    if (count == 1) {
        for (size_t r = 0; r < dots_rows; r++) {
            keep_in_memory();
            Levels levels;
            load_steps<Format>(levels, blocks[r]);
            Scales scales = Format::scales(blocks[r]);
            if (cols != group) keep_columns(scales, cols);
            add_rows<Format, 1>(&total[0][r], {&levels}, {&scales}, of_token, factors);
        }
        return;
    }
    Block decoded[dots_rows];
    for (size_t r = 0; r < dots_rows; r++) {
        load_steps<Format>(decoded[r].levels, blocks[r]);
        decoded[r].scales = Format::scales(blocks[r]);
        if (cols != group) keep_columns(decoded[r].scales, cols);
    }
    for (size_t t = 0; t < count; t++, of_token += digits_of_group, factors += factors_of_group)
        for (size_t r = 0; r < dots_rows; r += 2) {
            keep_in_memory();
            add_rows<Format, 2>(&total[t][r], {&decoded[r].levels, &decoded[r + 1].levels},
                                {&decoded[r].scales, &decoded[r + 1].scales}, of_token, factors);
        }
}

HWY_INLINE void store_total(float* sums, const Floats (&v)[dots_rows]) {
    store_sums(sums, sums_of_halves(v[0].lower, v[1].lower, v[2].lower, v[3].lower),
               sums_of_halves(v[0].upper, v[1].upper, v[2].upper, v[3].upper));
}

// Splits 16 numbers into digits: the last two are in -64 .. 63, the first in -64 .. 64.
HWY_INLINE void split(int8_t* to, const float* x, float inverse_scale) {
    const __m256 by = _mm256_set1_ps(inverse_scale);
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

} // namespace

void convert_group(int8_t* to, float* factors, const float* x) {
    alignas(32) int8_t in_order[digits_of_group];
    alignas(32) float inverse[16];
    find_scales(factors, inverse, x, base * base * base / 2);
    for (size_t lane = 0; lane < 16; lane++) split(in_order + 16 * run_of(lane), x + 16 * run_of(lane), inverse[lane]);
    for (size_t half = 0; half < 2; half++) {
        __m256i sums[digits];
        for (size_t d = 0; d < digits; d++) sums[d] = store_digit(to + d * group + half * 32, in_order + d * group + half * 32);
        const __m256i high = _mm256_add_epi32(_mm256_slli_epi32(sums[0], base_bits), sums[1]);
        const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, base_bits), sums[2]);
        float* const of_half = factors + 8 * half;
        _mm256_store_ps(of_half + sums_at, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_load_ps(of_half)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(of_half + high_at), high);
        _mm256_store_si256(reinterpret_cast<__m256i*>(of_half + low_at), sums[2]);
    }
}

} // namespace tq::cpu::avx2
HWY_POP_ATTRIBUTES
#endif
