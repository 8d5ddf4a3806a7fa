#include "model/cpu/fixed_point.h"
#include "base/ensure.h"
#include <bit>
#include <hwy/targets.h>

#if HWY_ARCH_X86_64
#include "model/cpu/fixed_point_formats.h"

HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,avx,avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")
namespace tq::cpu::vnni {
namespace {

constexpr size_t group = 256, vector = 64, steps = 4, digits = 3; // columns, bytes, vectors of a group's digit, and digits
constexpr size_t digits_of_group = digits * group, factors_of_group = 64;
constexpr size_t prefetched_rows = 2 * dots_rows; // those of the call after the next

// sums[rows] += levels times a digit of 16 columns, in each lane those of its run.
HWY_INLINE void add_products(Ints (&sums)[dots_rows], const Ints (&levels)[dots_rows][steps], const int8_t* x) {
    HWY_UNROLL(4)
    for (size_t s = 0; s < steps; s++) {
        const Ints digit = _mm512_load_si512(x + s * vector);
        HWY_UNROLL(4)
        for (size_t r = 0; r < dots_rows; r++) sums[r] = _mm512_dpbusd_epi32(sums[r], levels[r][s], digit);
    }
}

// Adds the sums over a group for one token to total[rows]. Those of levels times digits of 16 columns are exact; without
// minimums they begin with what makes the levels signed.
template <class Format> HWY_INLINE void add_group(Floats* total, const Ints (&levels)[dots_rows][steps],
                                                  const Scales (&scales)[dots_rows], const int8_t* x, const float* factors) {
    Ints high[dots_rows], low[dots_rows];
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) {
        high[r] = Format::has_minimum ? _mm512_setzero_si512() : _mm512_load_si512(factors + 16);
        low[r] = Format::has_minimum ? _mm512_setzero_si512() : _mm512_load_si512(factors + 32);
    }
    add_products(high, levels, x);
    add_products(low, levels, x + 2 * group);
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) high[r] = _mm512_slli_epi32(high[r], 8);
    add_products(high, levels, x + group);
    const Floats scale = _mm512_load_ps(factors);
    HWY_UNROLL(4)
    for (size_t r = 0; r < dots_rows; r++) {
        // A quarter of 256 high + low is what fits, within fixed_point_limit.
        const Ints quarter = _mm512_add_epi32(_mm512_slli_epi32(high[r], 6), _mm512_srai_epi32(low[r], 2));
        const Floats sum = _mm512_cvtepi32_ps(quarter);
        if constexpr (Format::has_minimum) total[r] = _mm512_fmadd_ps(scales[r].minimum, _mm512_load_ps(factors + 48), total[r]);
        total[r] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scales[r].scale, scale), total[r]);
    }
}

// Returns the sums of all lanes of four vectors.
HWY_INLINE __m128 sums_of_lanes(const Floats* v) {
    const Floats a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    const Floats b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    const Floats c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

// Prefetches `count` bytes that lie `distance` bytes after p: after the last row there may be other memory, or none.
template <size_t count> HWY_INLINE void prefetch(const uint8_t* p, size_t distance) {
    const auto address = reinterpret_cast<uintptr_t>(p) + distance; // a pointer there may be out of range
    for (size_t at = 0; at < count; at += 64) _mm_prefetch(reinterpret_cast<const char*>(address + at), _MM_HINT_T0);
}

template <class Format> void dots(float* sums, const uint8_t* const* rows, const FixedPoint& x) {
    Floats total[max_fixed_point_tokens][dots_rows];
    for (size_t t = 0; t < x.tokens; t++)
        for (Floats& of_row : total[t]) of_row = _mm512_setzero_ps();
    const int8_t* at = x.digits;
    const float* factors = x.factors;
    for (size_t i = 0; i < x.cols / group; i++) {
        Ints levels[dots_rows][steps];
        Scales scales[dots_rows];
        HWY_UNROLL(4)
        for (size_t r = 0; r < dots_rows; r++) {
            const uint8_t* block = rows[r] + i * Format::bytes_of_256;
            prefetch<Format::bytes_of_256>(block, prefetched_rows * x.cols / group * Format::bytes_of_256);
            transpose(levels[r],
                      {Format::levels(block, 0), Format::levels(block, 1), Format::levels(block, 2), Format::levels(block, 3)});
            scales[r] = Format::scales(block);
        }
        for (size_t t = 0; t < x.tokens; t++, at += digits_of_group, factors += factors_of_group)
            add_group<Format>(total[t], levels, scales, at, factors);
    }
    for (size_t t = 0; t < x.tokens; t++) _mm_storeu_ps(sums + t * dots_rows, sums_of_lanes(total[t]));
}

// Splits 16 numbers x / scale into digits: the last two are in -128 .. 127, so that the first fits a byte, too.
HWY_INLINE void split(int8_t* to, Floats x, float inverse_scale) {
    Ints left = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse_scale)));
    for (size_t digit = digits; digit-- > 0;) {
        _mm_store_si128(reinterpret_cast<__m128i*>(to + digit * group), _mm512_cvtepi32_epi8(left));
        left = _mm512_srai_epi32(_mm512_add_epi32(left, _mm512_set1_epi32(128)), 8);
    }
}

// Converts 32 numbers, the i-th such run of a group, to digits in the order of the columns and scales in that of the lanes.
HWY_INLINE void convert_run(int8_t* to, float* scales, const float* x, size_t i, float limit) {
    constexpr float min_scale = 1e-37f; // its inverse is finite
    const Floats a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    // As integers, magnitudes have the order of the numbers, and NaN is the greatest.
    const Ints bits = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)));
    const float size = std::bit_cast<float>(_mm512_reduce_max_epi32(bits));
    const float scale = size / limit < min_scale ? min_scale : size / limit;
    split(to + 32 * i, a, 1 / scale);
    split(to + 32 * i + 16, b, 1 / scale);
    const size_t lane = 2 * i % 4 * 4 + i / 2; // of the first half's run, by run_order(); the second's is four lanes on
    scales[lane] = scales[lane + 4] = scale;
}

// Converts 256 numbers.
void convert_group(int8_t* to, float* factors, const float* x, float limit) {
    alignas(64) int8_t in_order[digits_of_group];
    for (size_t i = 0; i < group / 32; i++) convert_run(in_order, factors, x + 32 * i, i, limit);
    Ints sums[digits]; // of each run
    for (size_t digit = 0; digit < digits; digit++) {
        Ints v[4], transposed[4];
        for (size_t i = 0; i < 4; i++) v[i] = _mm512_load_si512(in_order + digit * group + i * vector);
        transpose(transposed, v);
        sums[digit] = _mm512_setzero_si512();
        for (size_t s = 0; s < steps; s++) {
            _mm512_store_si512(to + digit * group + s * vector, transposed[s]);
            sums[digit] = _mm512_dpbusd_epi32(sums[digit], bytes(1), transposed[s]);
        }
    }
    const Ints low = _mm512_add_epi32(_mm512_slli_epi32(sums[1], 8), sums[2]);
    const Ints sum = _mm512_add_epi32(_mm512_slli_epi32(sums[0], 16), low);
    const Floats scales = _mm512_load_ps(factors);
    _mm512_store_ps(factors, _mm512_mul_ps(_mm512_set1_ps(4), scales));
    _mm512_store_si512(factors + 16, _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), sums[0]), 7));
    _mm512_store_si512(factors + 32, _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), low), 7));
    _mm512_store_ps(factors + 48, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales));
}

using Dots = void(float* sums, const uint8_t* const* rows, const FixedPoint& x);

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
    switch (type) { // 4 * 2^31 / 16 columns / the greatest level, less rounding
    case GgmlType::Q4_1:
    case GgmlType::Q5_1:
    case GgmlType::Q2_K:
    case GgmlType::Q4_K:
    case GgmlType::Q5_K: return 8355000; // levels up to 31; but the first digit is one byte
    default: return 2097000;             // levels up to 255
    }
}

bool has_fixed_point(GgmlType type, size_t cols) {
    return is_used() && cols % vnni::group == 0 && vnni::dots_for(type) != nullptr;
}

bool use_fixed_point(bool use) {
    is_used() = use && (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
    return is_used();
}

FixedPoint to_fixed_point(ThreadPool* pool, std::span<float> storage, std::span<const float> x, size_t cols, float limit) {
    using namespace vnni;
    static_assert(factors_of_group + digits_of_group / sizeof(float) == group);
    const size_t tokens = x.size() / cols, groups = x.size() / group;
    ENSURE(storage.size() >= x.size(), "{} floats for {}", storage.size(), x.size());
    float* factors = storage.data();
    auto* to = reinterpret_cast<int8_t*>(factors + groups * factors_of_group);
    const auto convert = [&](uint32_t begin, uint32_t end) {
        for (size_t i = 0; i < cols / group; i++)
            for (size_t t = begin; t < end; t++)
                convert_group(to + (i * tokens + t) * digits_of_group, factors + (i * tokens + t) * factors_of_group,
                              &x[t * cols + i * group], limit);
    };
    if (pool)
        pool->each(uint32_t(tokens), 4, convert);
    else
        convert(0, uint32_t(tokens));
    return {to, factors, tokens, cols};
}

void dots(GgmlType type, float* sums, const uint8_t* const* rows, const FixedPoint& x) { vnni::dots_for(type)(sums, rows, x); }

#else

bool has_fixed_point(GgmlType, size_t) { return false; }
bool use_fixed_point(bool) { return false; }
float fixed_point_limit(GgmlType) { return 0; }
FixedPoint to_fixed_point(ThreadPool*, std::span<float>, std::span<const float>, size_t, float) {
    ENSURE(false, "no integer products");
}
void dots(GgmlType type, float*, const uint8_t* const*, const FixedPoint&) {
    ENSURE(false, "no integer products of {}", type_name(type));
}

#endif

} // namespace tq::cpu
