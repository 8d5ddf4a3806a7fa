#include "model/cpu/fixed_point.h"
#include "base/ensure.h"
#include <hwy/targets.h>

#if HWY_ARCH_X86_64
#include "model/cpu/fixed_point_formats.h"

HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,avx,avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")
namespace tq::cpu::vnni {
namespace {

constexpr size_t group = 256, vector = 64, digits = 3, factors_of_group = 48;

// Returns the index of the run of each lane's four columns, of 64 columns from 64 v on.
template <size_t columns> HWY_INLINE Ints runs(size_t v) {
    const Ints lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(_mm512_srli_epi32(lane, columns == 16 ? 2 : 3), _mm512_set1_epi32(int(vector / columns * v)));
}

// Returns the sum of levels times x over each four columns, from the first digits to the last: exact within fixed_point_limit.
HWY_INLINE Ints multiply(Ints levels, const int8_t* x) {
    Ints sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), levels, _mm512_load_si512(x));
    sums = _mm512_dpbusd_epi32(_mm512_slli_epi32(sums, 8), levels, _mm512_load_si512(x + vector));
    return _mm512_dpbusd_epi32(_mm512_slli_epi32(sums, 8), levels, _mm512_load_si512(x + 2 * vector));
}

// sums[count] = row . x of the tokens from `token` on, which share the row's levels.
template <class Format, size_t count> void dots_of(float* sums, const uint8_t* row, const FixedPoint& x, size_t token) {
    const size_t digits_of_token = x.cols * digits, factors_of_token = x.cols / group * factors_of_group;
    const int8_t* at = x.digits + token * digits_of_token;
    const float* factors = x.factors + token * factors_of_token;
    Floats offset[count], total[count][2], scales[count];
    HWY_UNROLL(4)
    for (size_t t = 0; t < count; t++) offset[t] = total[t][0] = total[t][1] = _mm512_setzero_ps();
    for (size_t i = 0; i < x.cols; i += group, row += Format::bytes_of_256, factors += factors_of_group) {
        HWY_UNROLL(4)
        for (size_t t = 0; t < count; t++) scales[t] = Format::scales(row, factors + t * factors_of_token, offset[t]);
        HWY_UNROLL(4)
        for (size_t v = 0; v < 4; v++, at += digits * vector) {
            const Ints levels = Format::levels(row, v);
            HWY_UNROLL(4)
            for (size_t t = 0; t < count; t++) {
                const Floats products = _mm512_cvtepi32_ps(multiply(levels, at + t * digits_of_token));
                const Floats scale = _mm512_permutexvar_ps(runs<Format::columns>(v), scales[t]);
                total[t][v % 2] = _mm512_fmadd_ps(products, scale, total[t][v % 2]);
            }
        }
    }
    for (size_t t = 0; t < count; t++) {
        const Floats rest = _mm512_mul_ps(offset[t], _mm512_set1_ps(Format::offset_unit));
        sums[t] = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(total[t][0], total[t][1]), rest));
    }
}

// Four tokens at a time, whose sums stay in registers.
template <class Format> void dots(float* sums, const uint8_t* row, const FixedPoint& x) {
    size_t t = 0;
    for (; t + 4 <= x.tokens; t += 4) dots_of<Format, 4>(sums + t, row, x, t);
    if (t + 2 <= x.tokens) dots_of<Format, 2>(sums + t, row, x, t), t += 2;
    if (t < x.tokens) dots_of<Format, 1>(sums + t, row, x, t);
}

// Splits 16 numbers x / scale into digits: the last two are in -128 .. 127, so that the first fits a byte, too.
HWY_INLINE void split(int8_t* to, Floats x, float inverse_scale) {
    Ints left = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse_scale)));
    for (size_t digit = digits; digit-- > 0;) {
        _mm_store_si128(reinterpret_cast<__m128i*>(to + digit * vector), _mm512_cvtepi32_epi8(left));
        left = _mm512_srai_epi32(_mm512_add_epi32(left, _mm512_set1_epi32(128)), 8);
    }
}

// Converts 32 numbers, the i-th such run of 256.
HWY_INLINE void convert_run(int8_t* to, float* factors, const float* x, size_t i, float limit) {
    constexpr float min_scale = 1e-37f; // its inverse is finite
    const Floats a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float size = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const float scale = size / limit > min_scale ? size / limit : min_scale;
    split(to, a, 1 / scale);
    split(to + 16, b, 1 / scale);
    const float sum_a = _mm512_reduce_add_ps(a), sum_b = _mm512_reduce_add_ps(b);
    factors[i] = factors[16 + 2 * i] = factors[17 + 2 * i] = scale;
    factors[8 + i] = -(sum_a + sum_b);
    factors[32 + 2 * i] = sum_a;
    factors[33 + 2 * i] = sum_b;
}

void convert(int8_t* to, float* factors, std::span<const float> x, float limit) {
    for (size_t at = 0; at < x.size(); at += 32)
        convert_run(to + at / vector * digits * vector + at % vector, factors + at / group * factors_of_group, &x[at],
                    at % group / 32, limit);
}

using Dots = void(float* sums, const uint8_t* row, const FixedPoint& x);

// Returns nullptr where a format has no integer kernel: its products use vectors of fp32.
Dots* dots_for(GgmlType type) {
    switch (type) {
    case GgmlType::Q8_0: return dots<Q8_0>;
    case GgmlType::Q4_0: return dots<Q4_0>;
    case GgmlType::Q4_1: return dots<Q4_1>;
    case GgmlType::Q5_0: return dots<Q5_0>;
    case GgmlType::Q5_1: return dots<Q5_1>;
    case GgmlType::Q2_K: return dots<Q2_K>;
    case GgmlType::Q3_K: return dots<Q3_K>;
    case GgmlType::Q4_K: return dots<Q4_K>;
    case GgmlType::Q5_K: return dots<Q5_K>;
    case GgmlType::Q6_K: return dots<Q6_K>;
    case GgmlType::IQ4_NL: return dots<IQ4_NL>;
    case GgmlType::IQ4_XS: return dots<IQ4_XS>;
    case GgmlType::MXFP4: return dots<MXFP4>;
    default: return nullptr;
    }
}

} // namespace
} // namespace tq::cpu::vnni
HWY_POP_ATTRIBUTES
#endif

namespace tq::cpu {

#if HWY_ARCH_X86_64

namespace {

// Detected once: in a virtual machine cpuid may take longer than a product.
bool& is_used() {
    static bool value = (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
    return value;
}

} // namespace

float fixed_point_limit(GgmlType type) {
    switch (type) { // 2^31 / 4 columns / the greatest level, less rounding
    case GgmlType::Q8_0:
    case GgmlType::IQ4_NL:
    case GgmlType::IQ4_XS: return 2097000; // levels up to 255
    default: return 8355000;               // up to 63; and the first digit is one byte
    }
}

bool has_fixed_point(GgmlType type, size_t cols) {
    return is_used() && cols % vnni::group == 0 && vnni::dots_for(type) != nullptr;
}

bool use_fixed_point(bool use) {
    is_used() = use && (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
    return is_used();
}

FixedPoint to_fixed_point(AlignedFloats& storage, std::span<const float> x, size_t cols, float limit) {
    const size_t tokens = x.size() / cols, factors = cols / vnni::group * vnni::factors_of_group;
    const std::span all = storage.first(tokens * (factors + (cols * vnni::digits + sizeof(float) - 1) / sizeof(float)));
    auto* digits = reinterpret_cast<int8_t*>(all.data() + tokens * factors);
    for (size_t t = 0; t < tokens; t++)
        vnni::convert(digits + t * cols * vnni::digits, all.data() + t * factors, x.subspan(t * cols, cols), limit);
    return {digits, all.data(), tokens, cols};
}

void dots(GgmlType type, float* sums, const uint8_t* row, const FixedPoint& x) { vnni::dots_for(type)(sums, row, x); }

#else

bool has_fixed_point(GgmlType, size_t) { return false; }
bool use_fixed_point(bool) { return false; }
float fixed_point_limit(GgmlType) { return 0; }
FixedPoint to_fixed_point(AlignedFloats&, std::span<const float>, size_t, float) { ENSURE(false, "no integer products"); }
void dots(GgmlType type, float*, const uint8_t*, const FixedPoint&) {
    ENSURE(false, "no integer products of {}", type_name(type));
}

#endif

} // namespace tq::cpu
