// The codec's definition as code. Only +, -, *, comparison and integer operations lie between input and bytes, in fixed orders.
#include "model/kv/turboquant.h"
#include "base/ensure.h"
#include "base/half.h"
#include "shaders/tables.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq {
namespace {

constexpr uint32_t max_head_dim = 256;

struct Codebook {
    std::array<uint32_t, 8> levels;
    std::array<uint32_t, 7> thresholds; // fp32 bits, for head_dim 128
};

constexpr uint32_t byte_of(uint32_t word, int i) { return (word >> (8 * i)) & 0xff; }

const Codebook& codebook(KvType type) {
    static constexpr auto unpack = [](uint32_t low, uint32_t high) {
        std::array<uint32_t, 8> levels{};
        for (int i = 0; i < 8; i++) levels[size_t(i)] = byte_of(i < 4 ? low : high, i % 4);
        return levels;
    };
    static constexpr Codebook tq4{unpack(TQ4_LEVELS_LOW, TQ4_LEVELS_HIGH), {TQ4_THRESHOLDS}};
    static constexpr Codebook tq3{unpack(TQ3_LEVELS, 0), {TQ3_THRESHOLDS}};
    static constexpr Codebook tq2{unpack(TQ2_LEVELS, 0), {TQ2_THRESHOLDS}};
    return type == KvType::tq4 ? tq4 : type == KvType::tq3 ? tq3 : tq2;
}

uint32_t mix(uint32_t x) { // a 32-bit finaliser: every input bit reaches every output bit
    x = (x ^ (x >> 16)) * 0x21f0aaadu;
    x = (x ^ (x >> 15)) * 0x735a2d97u;
    return x ^ (x >> 15);
}

bool negated(const Signs& signs, size_t i) { return (signs[i / 32] >> (i % 32) & 1) != 0; }

void hadamard(std::span<float> x) {
    for (size_t stride = 1; stride < x.size(); stride *= 2)
        for (size_t i = 0; i < x.size(); i++)
            if ((i & stride) == 0) {
                const float u = x[i], w = x[i + stride];
                x[i] = u + w;
                x[i + stride] = u - w;
            }
}

float tree_sum(std::span<float> terms) {
    for (size_t s = terms.size() / 2; s > 0; s /= 2)
        for (size_t i = 0; i < s; i++) terms[i] = terms[i] + terms[i + s];
    return terms[0];
}

// y = s * x / 2^e, e the largest exponent in x; integers only. Elements below 2^-39 of it become 0.
// Returns e; -128 when the whole vector counts as zero, 128 when an element is not finite.
int normalise_exponents(std::span<float> y, std::span<const float> x, const Signs& signs) {
    uint32_t largest = 0;
    for (const float v : x) largest = std::max(largest, (std::bit_cast<uint32_t>(v) >> 23) & 255);
    const int e = int(largest) - 127;
    const bool zero = e < -25 || e == 128;
    for (size_t i = 0; i < x.size(); i++) {
        const uint32_t word = std::bit_cast<uint32_t>(x[i]), flip = negated(signs, i) ? 0x80000000u : 0;
        const int exponent = int((word >> 23) & 255) - 127 - e;
        y[i] =
            zero || exponent < -39 ? 0.0f : std::bit_cast<float>(((word & 0x807fffffu) | uint32_t(exponent + 127) << 23) ^ flip);
    }
    return e == 128 ? 128 : zero ? -128 : e;
}

void store_code(KvType type, std::span<uint32_t> codes, size_t head_dim, size_t i, uint32_t index, uint32_t sign) {
    if (type == KvType::tq4) {
        codes[i / 8] |= (index | sign << 3) << (4 * (i % 8));
        return;
    }
    const uint32_t magnitude_bits = bits(type) - 1;
    codes[i * magnitude_bits / 32] |= index << (i * magnitude_bits % 32);
    codes[(head_dim * magnitude_bits + i) / 32] |= sign << (i % 32);
}

} // namespace

Signs rotation_signs(uint32_t layer, KvSide side) {
    Signs signs;
    for (uint32_t w = 0; w < signs.size(); w++) signs[w] = mix(((layer * 2 + uint32_t(side)) * 8 + w + 1) * 0x9e3779b9u);
    return signs;
}

void rotate(std::span<float> x, const Signs& signs) {
    for (size_t i = 0; i < x.size(); i++)
        if (negated(signs, i)) x[i] = -x[i];
    hadamard(x);
}

void rotate_back(std::span<float> x, const Signs& signs) {
    hadamard(x);
    for (size_t i = 0; i < x.size(); i++) x[i] = (negated(signs, i) ? -x[i] : x[i]) / float(x.size());
}

uint16_t encode(KvType type, std::span<uint32_t> codes, std::span<const float> x, const Signs& signs) {
    const size_t d = x.size();
    ENSURE(d == 64 || d == 128 || d == 256, "head_dim {}", d);
    ENSURE(codes.size() == code_words(type, uint32_t(d)), "{} words for {}", codes.size(), name(type));
    if (type == KvType::f32) {
        for (size_t i = 0; i < d; i++) codes[i] = std::bit_cast<uint32_t>(x[i]);
        return 0x3c00;
    }
    if (type == KvType::f16) {
        for (size_t i = 0; i < d; i += 2) codes[i / 2] = float_to_half(x[i]) | uint32_t(float_to_half(x[i + 1])) << 16;
        return 0x3c00;
    }

    std::array<float, max_head_dim> y_storage, terms_storage;
    const std::span y(y_storage.data(), d), terms(terms_storage.data(), d);
    const int e = normalise_exponents(y, x, signs);
    hadamard(y);
    for (size_t i = 0; i < d; i++) terms[i] = y[i] * y[i];
    const float norm2 = tree_sum(terms);

    const Codebook& book = codebook(type);
    const size_t thresholds = (size_t(1) << (bits(type) - 1)) - 1;
    std::array<float, 7> limits{};
    for (size_t i = 0; i < thresholds; i++) // B = t^2 / d: a power of two in d only moves the exponent
        limits[i] = std::bit_cast<float>(book.thresholds[i] + (d == 64 ? 1u << 23 : d == 256 ? -(1u << 23) : 0u)) * norm2;

    std::ranges::fill(codes, 0u);
    for (size_t i = 0; i < d; i++) {
        const float square = y[i] * y[i];
        uint32_t index = 0;
        if (norm2 != 0)
            for (size_t j = 0; j < thresholds; j++) index += square >= limits[j] ? 1 : 0;
        store_code(type, codes, d, i, index, y[i] < 0 ? 1 : 0);
        terms[i] = std::fabs(y[i]) * float(book.levels[index]);
    }
    const float projection = tree_sum(terms);
    return e == 128 ? nonfinite_scale : norm2 == 0 ? uint16_t(0) : quotient_half_bits(norm2, projection, e);
}

void decode_levels(KvType type, std::span<float> levels, std::span<const uint32_t> codes) {
    const size_t d = levels.size();
    if (type == KvType::f32) {
        for (size_t i = 0; i < d; i++) levels[i] = std::bit_cast<float>(codes[i]);
    } else if (type == KvType::f16) {
        for (size_t i = 0; i < d; i++) levels[i] = half_to_float(uint16_t(codes[i / 2] >> (16 * (i % 2))));
    } else if (type == KvType::tq4) {
        const Codebook& book = codebook(type);
        for (size_t i = 0; i < d; i++) {
            const uint32_t nibble = codes[i / 8] >> (4 * (i % 8));
            const float level = float(book.levels[nibble & 7]);
            levels[i] = (nibble & 8) != 0 ? -level : level;
        }
    } else {
        const Codebook& book = codebook(type);
        const size_t b = bits(type) - 1;
        for (size_t i = 0; i < d; i++) {
            const float level = float(book.levels[codes[i * b / 32] >> (i * b % 32) & ((1u << b) - 1)]);
            levels[i] = (codes[(d * b + i) / 32] >> (i % 32) & 1) != 0 ? -level : level;
        }
    }
}

} // namespace tq
