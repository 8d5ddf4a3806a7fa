// TurboQuant's codec for one rotated vector y of head_dim channels (turboquant.md): each component becomes a sign and the index
// of a level, by thresholds on its square, and the vector gets one fp16 scale. Types of unequal bits have four quarters,
// the places with the same i % 4, with a scale each. Trellis types choose all codes together (model/kv/trellis.h).
// Every device must store the same bits. So there are only +, -, *, comparison and integer operations between input and bytes, in
// fixed orders: sums are trees of halves, thresholds are compared with squares (y^2 >= B * n2), and scales are quotients, or
// roots of quotients, that are rounded once, by integers (model/kv/exact.h).
#include "model/kv/turboquant.h"
#include "base/half.h"
#include "model/kv/exact.h"
#include "model/kv/trellis.h"
#include "shaders/tables.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq {
namespace {

using Vector = std::array<float, max_head_dim>;

std::vector<uint32_t> bytes_of(std::initializer_list<uint32_t> words, size_t count) {
    std::vector<uint32_t> out;
    for (const uint32_t word : words)
        for (uint32_t shift = 0; shift < 32 && out.size() < count; shift += 8) out.push_back(word >> shift & 0xff);
    return out;
}

std::vector<uint32_t> odd_numbers(size_t count) {
    std::vector<uint32_t> out(count);
    for (uint32_t i = 0; i < count; i++) out[i] = 2 * i + 1;
    return out;
}

// The numbers come from shaders/tables.h as words of four levels each, the form in which the kernels have them.
Codebook make_codebook(uint32_t magnitude_bits) {
    switch (magnitude_bits) {
    case 1: return {bytes_of({TQ2_LEVELS}, 2), {TQ2_THRESHOLDS}};
    case 2: return {bytes_of({TQ3_LEVELS}, 4), {TQ3_THRESHOLDS}};
    case 3: return {bytes_of({TQ4_LEVELS_LOW, TQ4_LEVELS_HIGH}, 8), {TQ4_THRESHOLDS}};
    case 4: return {bytes_of({TQ5_LEVELS_0, TQ5_LEVELS_1, TQ5_LEVELS_2, TQ5_LEVELS_3}, 16), {TQ5_THRESHOLDS}};
    case 5: {
        std::vector<uint32_t> levels = odd_numbers(16);
        const auto rest = bytes_of({TQ6_LEVELS_4, TQ6_LEVELS_5, TQ6_LEVELS_6, TQ6_LEVELS_7}, 16);
        levels.insert(levels.end(), rest.begin(), rest.end());
        return {levels, {TQ6_THRESHOLDS}};
    }
    case 6: {
        Codebook book{odd_numbers(64), {}};
        for (uint32_t i = 1; i < 64; i++) {
            const float threshold = float(i * i) * std::bit_cast<float>(TQ7_THRESHOLD);
            book.thresholds.push_back(std::bit_cast<uint32_t>(threshold));
        }
        return book;
    }
    default: return {odd_numbers(128), {}};
    }
}

// The order of a workgroup that halves its invocations in each step. The length is a power of two.
float tree_sum(std::span<float> terms) {
    for (size_t s = terms.size() / 2; s > 0; s /= 2)
        for (size_t i = 0; i < s; i++) terms[i] = terms[i] + terms[i + s];
    return terms[0];
}

// index = the number of thresholds B for which y^2 >= B * n2. (Threshold by threshold: loops over a vector's elements
// vectorise, here and below.)
void index_by_codebook(std::span<uint32_t> index, std::span<const float> squares, float norm2, const Codebook& book) {
    const size_t d = squares.size();
    const uint32_t exponent = uint32_t(std::countr_zero(size_t(128)) - std::countr_zero(d)) << 23;
    std::ranges::fill(index, 0u);
    for (const uint32_t threshold : book.thresholds) { // B = t^2 / d: a power of two in d only moves the exponent
        const float limit = std::bit_cast<float>(threshold + exponent) * norm2;
        for (size_t i = 0; i < d; i++) index[i] += squares[i] >= limit ? 1 : 0;
    }
}

// index = the largest i <= 127 with |y| * 128 >= i * m, m the largest |y|.
void index_uniformly(std::span<uint32_t> index, std::span<const float> y) {
    float largest = 0;
    for (const float v : y) largest = std::max(largest, std::fabs(v));
    std::ranges::fill(index, 0u);
    for (uint32_t step = 64; step > 0; step /= 2)
        for (size_t i = 0; i < y.size(); i++)
            index[i] += std::fabs(y[i]) * 128 >= float(int32_t(index[i] + step)) * largest ? step : 0;
}

uint16_t scale_of(ScaleRule rule, float norm2, float projection, uint32_t square_levels, int e) {
    switch (rule) {
    case ScaleRule::norm: return sqrt_quotient_half_bits(norm2, square_levels, e);
    case ScaleRule::least_squares: return quotient_half_bits(projection, float(square_levels), e);
    default: return quotient_half_bits(norm2, projection, e);
    }
}

// Chooses the codes of y, of `magnitudes` bits and a sign, and the levels that multiply |y|.
void choose_codes(KvType type, uint32_t magnitudes, std::span<uint32_t> codes, std::span<int32_t> levels,
                  std::span<const float> y, std::span<const float> squares, float norm2) {
    if (is_trellis(type)) { // the only levels that may differ in sign from y
        choose_trellis_codes(code_bits(type), codes, levels, y, norm2);
        for (size_t i = 0; i < y.size(); i++) levels[i] = y[i] < 0 ? -levels[i] : levels[i];
        return;
    }
    const uint32_t sign_bit = 1u << magnitudes;
    const Codebook& book = codebook(magnitudes);
    if (magnitudes == 7)
        index_uniformly(codes, y);
    else
        index_by_codebook(codes, squares, norm2, book);
    for (size_t i = 0; i < y.size(); i++) levels[i] = int32_t(book.levels[codes[i]]);
    for (size_t i = 0; i < y.size(); i++) codes[i] |= y[i] < 0 ? sign_bit : 0;
}

} // namespace

const Codebook& codebook(uint32_t magnitude_bits) {
    static const std::array books{Codebook{},       make_codebook(1), make_codebook(2), make_codebook(3),
                                  make_codebook(4), make_codebook(5), make_codebook(6), make_codebook(7)};
    return books[magnitude_bits];
}

static void encode_with_one_scale(KvType type, uint32_t magnitudes, ScaleRule rule, std::span<uint32_t> codes,
                                  std::span<uint16_t> scales, std::span<const float> y, int e) {
    const size_t d = y.size();
    Vector squares_storage, terms_storage{};
    const std::span squares(squares_storage.data(), d), terms(terms_storage.data(), d);
    for (size_t i = 0; i < d; i++) squares[i] = y[i] * y[i];
    std::ranges::copy(squares, terms.begin());
    const float norm2 = tree_sum(terms);

    std::array<int32_t, max_head_dim> levels_storage;
    const std::span levels(levels_storage.data(), d);
    choose_codes(type, magnitudes, codes, levels, y, squares, norm2);
    uint32_t square_levels = 0;
    for (size_t i = 0; i < d; i++) {
        square_levels += uint32_t(levels[i] * levels[i]);
        terms[i] = std::fabs(y[i]) * float(levels[i]);
    }
    const float projected = tree_sum(terms);
    scales[0] = scale_of(rule, norm2, projected, square_levels, e);
}

// Each quarter of y is a vector of its own.
static void encode_quarters(KvType type, ScaleRule rule, std::span<uint32_t> codes, std::span<uint16_t> scales,
                            std::span<const float> y, int e) {
    const size_t count = y.size() / KV_QUARTERS;
    for (uint32_t quarter = 0; quarter < KV_QUARTERS; quarter++) {
        Vector of_quarter{};
        std::array<uint32_t, max_head_dim> codes_of_quarter{};
        for (size_t i = 0; i < count; i++) of_quarter[i] = y[KV_QUARTERS * i + quarter];
        const std::span from(of_quarter.data(), count);
        const std::span to(codes_of_quarter.data(), count);
        scales[quarter] = 0;
        if (std::ranges::any_of(from, [](float v) { return v != 0; }))
            encode_with_one_scale(type, magnitude_bits(type, quarter), rule, to, scales.subspan(quarter, 1), from, e);
        for (size_t i = 0; i < count; i++) codes[KV_QUARTERS * i + quarter] = to[i];
    }
}

void encode_turboquant(KvType type, ScaleRule rule, std::span<uint32_t> codes, std::span<uint16_t> scales,
                       std::span<const float> y, int e) {
    if (is_unequal(type)) return encode_quarters(type, rule, codes, scales, y, e);
    encode_with_one_scale(type, is_trellis(type) ? 0 : magnitude_bits(type), rule, codes, scales, y, e);
}

void decode_turboquant(KvType type, std::span<float> y, std::span<const uint32_t> codes, std::span<const uint16_t> scales) {
    const size_t d = y.size();
    const float scale = half_to_float(scales[0]);
    const uint32_t bits = code_bits(type);
    for (size_t i = 0; is_trellis(type) && i < d; i++) y[i] = float(trellis_levels(bits)[trellis_index(bits, codes, i)]) * scale;
    if (is_trellis(type)) return;
    for (size_t i = 0; is_unequal(type) && i < d; i++) {
        const uint32_t magnitudes = magnitude_bits(type, i), sign = 1u << magnitudes;
        const float level = float(codebook(magnitudes).levels[codes[i] & (sign - 1)]);
        y[i] = ((codes[i] & sign) != 0 ? -level : level) * half_to_float(scales[i % KV_QUARTERS]);
    }
    if (is_unequal(type)) return;
    const uint32_t sign_bit = 1u << magnitude_bits(type);
    const Codebook& book = codebook(magnitude_bits(type));
    for (size_t i = 0; i < d; i++) {
        const float level = float(book.levels[codes[i] & (sign_bit - 1)]);
        y[i] = ((codes[i] & sign_bit) != 0 ? -level : level) * scale;
    }
}

} // namespace tq
