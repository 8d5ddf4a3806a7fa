// Rows of random weights that are made whenever they are read, so that a model of 80 GB needs no disk and no memory. A row
// depends on its seed and number alone: any part can be made in any order, by any thread.
// The bytes of a block are random, so levels, signs and sub-block scales are; the block's fp16 scale is then set so that the
// weights have the wanted deviation. block_deviation() measures the deviation of random blocks with a scale of 1, once for a
// format, by decoding some. If random levels do not have a mean of 0, a minimum in the right ratio or a random sign of the scale
// makes up for it.
#include "model/weights/synthetic/synthetic_rows.h"
#include "base/ensure.h"
#include "base/half.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace tq {
namespace {

// An integer hash whose every output bit depends on every input bit: two rounds of multiply and xor-shift.
uint32_t hash(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

void fill(std::span<std::byte> row, uint32_t seed, uint32_t r) {
    const uint32_t start = hash(seed + hash(r + 0x9e3779b9u));
    const uint32_t words = uint32_t(row.size() / 4);
    for (uint32_t i = 0; i < words; i++) {
        const uint32_t word = hash(start + i);
        std::memcpy(row.data() + size_t(i) * 4, &word, 4);
    }
    const uint32_t last = hash(start + words);
    std::memcpy(row.data() + size_t(words) * 4, &last, row.size() % 4);
}

// Sets the scales of a row of random blocks. If the levels are not symmetric and no minimum compensates for it, the scale keeps a
// random sign.
void set_scales(std::span<std::byte> row, const BlockFormat& format, uint16_t scale, uint16_t minimum) {
    const BlockScales& fields = format.scales;
    const int sign_at = fields.scale + (fields.in_nibbles ? 7 : 1);
    for (std::byte* block = row.data(); block < row.data() + row.size(); block += format.bytes) {
        const uint16_t sign = fields.minimum < 0 ? uint16_t(int(block[sign_at] & std::byte(0x80)) << 8) : 0;
        set_block_scales(format, block, scale | sign, minimum);
    }
}

MakeRow block_rows(GgmlType type, double deviation, uint32_t seed) {
    const BlockFormat& format = *block_format(type);
    // Five bits of mantissa leave room for the product with the ratio.
    int exponent = 0;
    const double fraction = std::frexp(deviation / block_deviation(type), &exponent);
    const double scale = std::ldexp(std::round(fraction * 32), exponent - 5);
    return [&format, seed, fp16_scale = float_to_half(float(scale)),
            minimum = float_to_half(float(scale * format.scales.ratio))](std::span<std::byte> to, uint32_t row) {
        fill(to, seed, row);
        set_scales(to, format, fp16_scale, minimum);
    };
}

// Numbers of random sign and mantissa and one exponent: magnitudes from 2^e to 2^(e+1), root mean square 2^e sqrt(7/3).
MakeRow number_rows(GgmlType type, double deviation, uint32_t seed) {
    const int exponent = std::clamp(int(std::lround(std::log2(deviation / std::sqrt(7.0 / 3)))), -14, 15);
    uint32_t random = 0, fixed = 0;
    switch (type) {
    case GgmlType::F32: random = 0x807fffff, fixed = uint32_t(exponent + 127) << 23; break;
    case GgmlType::F16: random = 0x83ff83ff, fixed = uint32_t(exponent + 15) * 0x04000400; break;
    case GgmlType::BF16: random = 0x807f807f, fixed = uint32_t(exponent + 127) * 0x00800080; break;
    default: ENSURE(false, "{} has blocks", type_name(type));
    }
    return [random, fixed, seed](std::span<std::byte> to, uint32_t row) {
        fill(to, seed, row);
        for (size_t at = 0; at + 4 <= to.size(); at += 4) {
            uint32_t word;
            std::memcpy(&word, &to[at], 4);
            word = (word & random) | fixed;
            std::memcpy(&to[at], &word, 4);
        }
    };
}

constexpr double fp4_deviation = 5.85; // root mean square of 0 1 2 3 4 6 8 12, which are stored doubled

// MXFP4 and NVFP4, whose scale is one byte, the same for all blocks; their levels are symmetric. Each block begins with `scales`
// bytes of scales.
MakeRow fp4_rows(GgmlType type, size_t scales, int scale, uint32_t seed) {
    return [bytes = block_format(type)->bytes, scales, scale, seed](std::span<std::byte> to, uint32_t row) {
        fill(to, seed, row);
        for (size_t at = 0; at < to.size(); at += bytes) std::ranges::fill(to.subspan(at, scales), std::byte(scale));
    };
}

} // namespace

double block_deviation(GgmlType type) {
    constexpr uint32_t blocks = 256;
    const BlockFormat& format = *block_format(type);
    ENSURE(format.scales.scale >= 0, "no scales of {}", format.name);
    std::vector<std::byte> row(size_t(blocks) * format.bytes);
    fill(row, 1, 0);
    set_scales(row, format, float_to_half(1), float_to_half(format.scales.ratio));
    std::vector<float> values(size_t(blocks) * format.elements);
    decode_row(type, values, row);
    double sum = 0;
    for (const float v : values) sum += double(v) * v;
    return std::sqrt(sum / double(values.size()));
}

Tensor synthetic_matrix(std::string name, GgmlType type, uint32_t rows, uint32_t cols, double deviation, uint32_t seed) {
    const BlockFormat* format = block_format(type);
    ENSURE(format && cols % std::max(format->elements, 2u) == 0, "{} columns of {}", cols, type_name(type));
    const double scale = deviation / fp4_deviation;
    MakeRow make_row;
    std::vector<float> factors;
    if (format->elements == 1) {
        make_row = number_rows(type, deviation, seed);
    } else if (type == GgmlType::MXFP4) {
        const int exponent = std::clamp(128 + int(std::lround(std::log2(scale))), 2, 252);
        make_row = fp4_rows(type, 1, exponent, seed);
    } else if (type == GgmlType::NVFP4) {
        constexpr int two = 0x40; // so that halves are 1
        make_row = fp4_rows(type, 4, two, seed);
        factors = {float(scale)};
    } else {
        make_row = block_rows(type, deviation, seed);
    }
    Tensor out = made_tensor(std::move(name), type, rows, cols, std::move(make_row));
    out.factors = std::move(factors);
    return out;
}

Tensor synthetic_vector(std::string name, uint32_t cols, float low, float high, uint32_t seed) {
    return made_tensor(std::move(name), GgmlType::F32, 1, cols, [low, high, seed](std::span<std::byte> to, uint32_t) {
        fill(to, seed, 0);
        for (size_t at = 0; at < to.size(); at += 4) {
            const float value = low + (high - low) * (float(int8_t(to[at])) + 128) / 256;
            std::memcpy(&to[at], &value, 4);
        }
    });
}

Tensor synthetic_norm(std::string name, uint32_t cols, uint32_t seed) {
    return synthetic_vector(std::move(name), cols, 0.75f, 1.25f, seed);
}

} // namespace tq
