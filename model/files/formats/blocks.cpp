// Decoding of ggml's block formats. Every product of scale and level is exact in fp32 (at most 24 significant bits), so that
// only the addition of a minimum rounds.
#include "model/files/formats/blocks.h"
#include "base/ensure.h"
#include "model/files/formats/block_reader.h"
#include "model/files/formats/blocks_iq.h"
#include "model/files/formats/blocks_k.h"
#include "model/files/formats/device_blocks.h"
#include <array>
#include <bit>

namespace tq {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is little-endian, and blocks are read as they lie");

void decode_f32(float* y, const std::byte* x, size_t n) {
    if (n != 0) std::memcpy(y, x, n * 4); // an empty tensor may have no address
}

void decode_f16(float* y, const std::byte* x, size_t n) {
    for (size_t i = 0; i < n; ++i) y[i] = load_fp16(x + 2 * i);
}

void decode_bf16(float* y, const std::byte* x, size_t n) {
    for (size_t i = 0; i < n; ++i) y[i] = std::bit_cast<float>(uint32_t(load<uint16_t>(x + 2 * i)) << 16);
}

// half d; int8 q[32]
void decode_q8_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 34) {
        const float d = load_fp16(x);
        for (int i = 0; i < 32; ++i) y[i] = d * float(int8_t(x[2 + i]));
    }
}

// half d; 16 bytes: the low nibbles are elements 0..15, the high ones 16..31
void decode_q4_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 18) {
        const float d = load_fp16(x);
        const auto qs = load<Bytes16>(x + 2);
        for (int i = 0; i < 16; ++i) {
            y[i] = d * float((qs[i] & 15) - 8);
            y[16 + i] = d * float((qs[i] >> 4) - 8);
        }
    }
}

// half d, m; nibbles as in Q4_0
void decode_q4_1(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 20) {
        const float d = load_fp16(x), m = load_fp16(x + 2);
        const auto qs = load<Bytes16>(x + 4);
        for (int i = 0; i < 16; ++i) {
            y[i] = d * float(qs[i] & 15) + m;
            y[16 + i] = d * float(qs[i] >> 4) + m;
        }
    }
}

// The levels of 32 elements: fifth bits, bit i of element i, over nibbles as in Q4_0.
// The multiplication copies four bits four times, each copy 7 places beyond the one before, so that bit k of copy k is at bit 8
// k; the mask drops the rest.
std::array<uint8_t, 32> five_bits(uint32_t high, const Bytes16& qs) {
    std::array<uint8_t, 32> levels;
    for (int i = 0; i < 16; i += 4) {
        // spreads four bits to bit 4 of each byte
        const uint32_t low = ((high >> i & 15) * 0x00204081u & 0x01010101u) << 4;
        const uint32_t upper = ((high >> (16 + i) & 15) * 0x00204081u & 0x01010101u) << 4;
        std::memcpy(&levels[i], &low, 4);
        std::memcpy(&levels[16 + i], &upper, 4);
    }
    for (int i = 0; i < 16; ++i) {
        levels[i] = uint8_t(levels[i] | (qs[i] & 15));
        levels[16 + i] = uint8_t(levels[16 + i] | qs[i] >> 4);
    }
    return levels;
}

// half d; 32 fifth bits; nibbles as in Q4_0
void decode_q5_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 22) {
        const float d = load_fp16(x);
        const auto levels = five_bits(load<uint32_t>(x + 2), load<Bytes16>(x + 6));
        for (int i = 0; i < 32; ++i) y[i] = d * float(levels[i] - 16);
    }
}

// half d, m; the rest as in Q5_0
void decode_q5_1(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 24) {
        const float d = load_fp16(x), m = load_fp16(x + 2);
        const auto levels = five_bits(load<uint32_t>(x + 4), load<Bytes16>(x + 8));
        for (int i = 0; i < 32; ++i) y[i] = d * float(levels[i]) + m;
    }
}

// y[32] = d times the levels of 16 bytes of nibbles, as in Q4_0.
void decode_levels(float* y, const std::byte* x, float d, const std::array<float, 16>& levels) {
    for (int i = 0; i < 16; ++i) {
        y[i] = d * levels[size_t(x[i] & std::byte(15))];
        y[16 + i] = d * levels[size_t(x[i] >> 4)];
    }
}

// half d; 16 bytes of nibbles
void decode_iq4_nl(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 18) decode_levels(y, x + 2, load_fp16(x), iq4_levels);
}

// a byte of exponent; 16 bytes of nibbles
void decode_mxfp4(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 17) decode_levels(y, x + 1, mxfp4_scale(uint8_t(x[0])), mxfp4_levels);
}

// four bytes of scales, each of 16 weights; 32 bytes of nibbles, in each eight the low ones, then the high ones
void decode_nvfp4(float* y, const std::byte* x, size_t blocks) {
    for (size_t run = 0; run < 4 * blocks; ++run, y += 16) {
        const std::byte *block = x + run / 4 * 36, *levels = block + 4 + run % 4 * 8;
        const float d = nvfp4_scale(uint8_t(block[run % 4]));
        for (int i = 0; i < 8; ++i) {
            y[i] = d * mxfp4_levels[size_t(levels[i] & std::byte(15))];
            y[8 + i] = d * mxfp4_levels[size_t(levels[i] >> 4)];
        }
    }
}

// Indexed by type id; {} for types that ggml dropped. Types without a decoder are listed to be named and skipped.
constexpr std::array<BlockFormat, 43> formats{{
    {"F32", 1, 4, decode_f32, {}, {{{0, 4}}}},
    {"F16", 1, 2, decode_f16, {}, {{{0, 2}}}},
    {"Q4_0", 32, 18, decode_q4_0, {0}, {{{2, 16}, {0, 2}}}},           // nibbles; scale
    {"Q4_1", 32, 20, decode_q4_1, {0, 2, -7.5f}, {{{4, 16}, {0, 4}}}}, // nibbles; scale and minimum
    {},
    {},
    {"Q5_0", 32, 22, decode_q5_0, {0}, {{{6, 16}, {2, 4}, {0, 2}}}, arrange_q5_0},    // nibbles; fifth bits; scale
    {"Q5_1", 32, 24, decode_q5_1, {0, 2, -15.5f}, {{{8, 16}, {0, 8}}}, arrange_q5_1}, // nibbles; scale, minimum and fifth bits
    {"Q8_0", 32, 34, decode_q8_0, {0}, {{{2, 32}, {0, 2}}}},                          // levels; scale
    {"Q8_1", 32, 36},
    {"Q2_K", 256, 84, decode_q2_k, {80, 82, 1.5f}, {{{0, 80}, {80, 4}}}, arrange_q2_k},    // sub-block scales, levels; d and dmin
    {"Q3_K", 256, 110, decode_q3_k, {108}, {{{0, 96}, {96, 12}, {108, 2}}}, arrange_q3_k}, // third bits, bit pairs; sub-block
                                                                                           // scales; d
    {"Q4_K", 256, 144, decode_q4_k, {0, 2, 7.5f}, {{{0, 144}}}, arrange_q4_k},
    {"Q5_K", 256, 176, decode_q5_k, {0, 2, 15.5f}, {{{0, 176}}}, arrange_q5_k},
    {"Q6_K", 256, 210, decode_q6_k, {208}, {{{0, 208}, {208, 2}}}, arrange_q6_k}, // low nibbles, high pairs, sub-block scales; d
    {"Q8_K", 256, 292},
    {"IQ2_XXS", 256, 66, decode_iq2_xxs, {0}, {{{2, 64}, {0, 2}}}, arrange_iq2_xxs, iq2_xxs_codes}, // parts: device_blocks.h
    {"IQ2_XS", 256, 74, decode_iq2_xs, {0}, {{{2, 64}, {66, 8}, {0, 2}}}, arrange_iq2_xs, iq2_xs_codes},
    {"IQ3_XXS", 256, 98, decode_iq3_xxs, {0}, {{{2, 96}, {0, 2}}}, arrange_iq3_xxs, iq3_xxs_codes},
    {"IQ1_S", 256, 50, decode_iq1_s, {0}, {{{2, 48}, {0, 2}}}, nullptr, iq1_codes}, // indices, high bits and scales; d
    {"IQ4_NL", 32, 18, decode_iq4_nl, {0}, {{{2, 16}, {0, 2}}}},
    {"IQ3_S", 256, 110, decode_iq3_s, {0}, {{{2, 96}, {98, 12}, {0, 2}}}, arrange_iq3_s, iq3_s_codes},
    {"IQ2_S", 256, 82, decode_iq2_s, {0}, {{{2, 80}, {0, 2}}}, arrange_iq2_s, iq2_s_codes},
    {"IQ4_XS", 256, 136, decode_iq4_xs, {0}, {{{8, 128}, {0, 8}}}},
    {"I8", 1, 1},
    {"I16", 1, 2},
    {"I32", 1, 4},
    {"I64", 1, 8},
    {"F64", 1, 8},
    {"IQ1_M", 256, 56, decode_iq1_m, {.scale = 48, .in_nibbles = true}, {{{0, 48}, {48, 8}}}, arrange_iq1_m, iq1_codes},
    {"BF16", 1, 2, decode_bf16, {}, {{{0, 2}}}},
    {},
    {},
    {},
    {"TQ1_0", 256, 54, decode_tq1_0, {52}},
    {"TQ2_0", 256, 66, decode_tq2_0, {64}, {{{0, 64}, {64, 2}}}, arrange_tq2_0}, // pairs; d
    {},
    {},
    {},
    {"MXFP4", 32, 17, decode_mxfp4, {}, {{{1, 16}, {0, 1}}}},
    {.name = "NVFP4",
     .elements = 64,
     .bytes = 36,
     .decode = decode_nvfp4,
     .parts = {{{0, 32}, {32, 4}}}, // nibbles; scales
     .arrange = arrange_nvfp4,
     .has_factor = true},
    {"Q1_0", 128, 18, decode_q1_0, {0}},
    {"Q2_0", 64, 18, decode_q2_0, {0}, {{{2, 16}, {0, 2}}}, arrange_q2_0}, // pairs; d
}};

} // namespace

const BlockFormat* stored_format(GgmlType type) {
    const auto id = uint32_t(type);
    return id < formats.size() && formats[id].name ? &formats[id] : nullptr;
}

const BlockFormat* block_format(GgmlType type) {
    const BlockFormat* format = stored_format(type);
    return format != nullptr && format->decode != nullptr ? format : nullptr;
}

std::string type_name(GgmlType type) {
    const BlockFormat* format = stored_format(type);
    return format ? format->name : "type " + std::to_string(uint32_t(type));
}

uint64_t row_bytes(GgmlType type, uint64_t cols) {
    const BlockFormat* format = block_format(type);
    ENSURE(format && cols % format->elements == 0, "{} columns of {}", cols, type_name(type));
    return cols / format->elements * format->bytes;
}

void set_block_scales(const BlockFormat& format, std::byte* block, uint16_t scale, uint16_t minimum) {
    std::byte* const at = block + format.scales.scale;
    if (format.scales.in_nibbles)
        for (int i = 0; i < 4; ++i) at[2 * i + 1] = (at[2 * i + 1] & std::byte(15)) | std::byte((scale >> 4 * i & 15) << 4);
    else
        std::memcpy(at, &scale, 2);
    if (format.scales.minimum >= 0) std::memcpy(block + format.scales.minimum, &minimum, 2);
}

void decode_row(GgmlType type, std::span<float> y, std::span<const std::byte> row) {
    ENSURE(row.size() == row_bytes(type, y.size()), "{} bytes for {} columns of {}", row.size(), y.size(), type_name(type));
    const BlockFormat& format = *block_format(type);
    format.decode(y.data(), row.data(), y.size() / format.elements);
}

} // namespace tq
