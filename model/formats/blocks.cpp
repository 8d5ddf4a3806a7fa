// Decoding of ggml's block formats. Every product of scale and level is exact in fp32 (at most 24 significant bits), so that
// only the K-quants' subtraction of the minimum rounds.
#include "model/formats/blocks.h"
#include "base/ensure.h"
#include "base/half.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace tq {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is little-endian, and blocks are read as they lie");

template <class T> T load(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

float load_half(const std::byte* p) { return half_to_float(load<uint16_t>(p)); }

// Indexed by type id; {nullptr} where ggml has no such type any more.
constexpr std::array<BlockFormat, 43> formats{{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {},
    {},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},
    {"Q8_1", 32, 36},
    {"Q2_K", 256, 84},
    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
    {"Q8_K", 256, 292},
    {"IQ2_XXS", 256, 66},
    {"IQ2_XS", 256, 74},
    {"IQ3_XXS", 256, 98},
    {"IQ1_S", 256, 50},
    {"IQ4_NL", 32, 18},
    {"IQ3_S", 256, 110},
    {"IQ2_S", 256, 82},
    {"IQ4_XS", 256, 136},
    {"I8", 1, 1},
    {"I16", 1, 2},
    {"I32", 1, 4},
    {"I64", 1, 8},
    {"F64", 1, 8},
    {"IQ1_M", 256, 56},
    {"BF16", 1, 2},
    {},
    {},
    {},
    {"TQ1_0", 256, 54},
    {"TQ2_0", 256, 66},
    {},
    {},
    {},
    {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},
    {"Q1_0", 128, 18},
    {"Q2_0", 64, 18},
}};

void decode_f32(float* y, const std::byte* x, size_t n) { std::memcpy(y, x, n * 4); }

void decode_f16(float* y, const std::byte* x, size_t n) {
    for (size_t i = 0; i < n; ++i) y[i] = load_half(x + 2 * i);
}

void decode_bf16(float* y, const std::byte* x, size_t n) {
    for (size_t i = 0; i < n; ++i) y[i] = std::bit_cast<float>(uint32_t(load<uint16_t>(x + 2 * i)) << 16);
}

// half d; int8 q[32]
void decode_q8_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 34) {
        const float d = load_half(x);
        for (int i = 0; i < 32; ++i) y[i] = d * float(int8_t(x[2 + i]));
    }
}

// half d; 16 bytes: the low nibbles are elements 0..15, the high ones 16..31
void decode_q4_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, y += 32, x += 18) {
        const float d = load_half(x);
        for (int i = 0; i < 16; ++i) {
            const int q = int(x[2 + i]);
            y[i] = d * float((q & 15) - 8);
            y[16 + i] = d * float((q >> 4) - 8);
        }
    }
}

struct ScaleMin {
    float scale, min;
};

// The eight 6-bit (scale, minimum) pairs that Q4_K and Q5_K pack into 12 bytes, times the block's d and dmin.
std::array<ScaleMin, 8> decode_scales(const std::byte* x) {
    const float d = load_half(x), dmin = load_half(x + 2);
    const std::byte* s = x + 4;
    std::array<ScaleMin, 8> out;
    for (int j = 0; j < 4; ++j) {
        const int a = int(s[j]), b = int(s[j + 4]), c = int(s[j + 8]);
        out[j] = {d * float(a & 63), dmin * float(b & 63)};
        out[j + 4] = {d * float((c & 15) | (a >> 6) << 4), dmin * float((c >> 4) | (b >> 6) << 4)};
    }
    return out;
}

// half d, dmin; 12 bytes of scales; 128 bytes: each run of 32 holds 32 low nibbles, then 32 high ones
void decode_q4_k(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, x += 144) {
        const auto scales = decode_scales(x);
        const std::byte* qs = x + 16;
        for (int j = 0; j < 8; j += 2, qs += 32, y += 64) {
            const auto [d0, m0] = scales[j];
            const auto [d1, m1] = scales[j + 1];
            for (int l = 0; l < 32; ++l) {
                const int q = int(qs[l]);
                y[l] = d0 * float(q & 15) - m0;
                y[32 + l] = d1 * float(q >> 4) - m1;
            }
        }
    }
}

// As Q4_K, with 32 bytes of fifth bits before the nibbles: bit j of byte l belongs to element 32 j + l
void decode_q5_k(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, x += 176) {
        const auto scales = decode_scales(x);
        const std::byte *qh = x + 16, *qs = x + 48;
        for (int j = 0; j < 8; j += 2, qs += 32, y += 64) {
            const auto [d0, m0] = scales[j];
            const auto [d1, m1] = scales[j + 1];
            for (int l = 0; l < 32; ++l) {
                const int q = int(qs[l]), h = int(qh[l]) >> j;
                y[l] = d0 * float((q & 15) | (h & 1) << 4) - m0;
                y[32 + l] = d1 * float((q >> 4) | (h & 2) << 3) - m1;
            }
        }
    }
}

// 128 bytes of low nibbles; 64 bytes of high bit pairs; int8 scales[16]; half d. Each half of the block is four runs of 32:
// runs 0 and 1 in the low nibbles of 64 bytes, 2 and 3 in their high ones; the pair of run g is at bits 2g.
void decode_q6_k(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, x += 210) {
        const float d = load_half(x + 208);
        for (int n = 0; n < 2; ++n, y += 128) {
            const std::byte *ql = x + 64 * n, *qh = x + 128 + 32 * n, *scales = x + 192 + 8 * n;
            for (int l0 = 0; l0 < 32; l0 += 16) {
                std::array<float, 4> s;
                for (int g = 0; g < 4; ++g) s[g] = d * float(int8_t(scales[2 * g + l0 / 16]));
                for (int l = l0; l < l0 + 16; ++l) {
                    const int q0 = int(ql[l]), q1 = int(ql[32 + l]), h = int(qh[l]);
                    y[l] = s[0] * float(((q0 & 15) | (h & 3) << 4) - 32);
                    y[32 + l] = s[1] * float(((q1 & 15) | (h & 12) << 2) - 32);
                    y[64 + l] = s[2] * float(((q0 >> 4) | (h & 48)) - 32);
                    y[96 + l] = s[3] * float(((q1 >> 4) | (h & 192) >> 2) - 32);
                }
            }
        }
    }
}

// The first of n elements whose exponent bits are all ones. Whole chunks are tested without branches, so that they vectorise.
template <class T> std::optional<uint64_t> find_exponent(const std::byte* x, uint64_t n, T exponent) {
    constexpr uint64_t chunk = 4096;
    for (uint64_t begin = 0; begin < n; begin += chunk) {
        const uint64_t end = std::min(n, begin + chunk);
        T any = 0;
        for (uint64_t i = begin; i < end; ++i) any |= T((load<T>(x + i * sizeof(T)) & exponent) == exponent);
        if (!any) continue;
        for (uint64_t i = begin; i < end; ++i) {
            if ((load<T>(x + i * sizeof(T)) & exponent) == exponent) return i;
        }
    }
    return std::nullopt;
}

bool half_is_finite(const std::byte* p) { return (load<uint16_t>(p) & 0x7c00) != 0x7c00; }

} // namespace

const BlockFormat* stored_format(GgmlType type) {
    const auto id = uint32_t(type);
    return id < formats.size() && formats[id].name ? &formats[id] : nullptr;
}

const BlockFormat* block_format(GgmlType type) {
    switch (type) {
    case GgmlType::F32:
    case GgmlType::F16:
    case GgmlType::Q4_0:
    case GgmlType::Q8_0:
    case GgmlType::Q4_K:
    case GgmlType::Q5_K:
    case GgmlType::Q6_K:
    case GgmlType::BF16: return stored_format(type);
    }
    return nullptr;
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

void decode_row(GgmlType type, std::span<float> y, std::span<const std::byte> row) {
    ENSURE(row.size() == row_bytes(type, y.size()), "{} bytes for {} columns of {}", row.size(), y.size(), type_name(type));
    switch (type) {
    case GgmlType::F32: return decode_f32(y.data(), row.data(), y.size());
    case GgmlType::F16: return decode_f16(y.data(), row.data(), y.size());
    case GgmlType::BF16: return decode_bf16(y.data(), row.data(), y.size());
    case GgmlType::Q8_0: return decode_q8_0(y.data(), row.data(), y.size() / 32);
    case GgmlType::Q4_0: return decode_q4_0(y.data(), row.data(), y.size() / 32);
    case GgmlType::Q4_K: return decode_q4_k(y.data(), row.data(), y.size() / 256);
    case GgmlType::Q5_K: return decode_q5_k(y.data(), row.data(), y.size() / 256);
    case GgmlType::Q6_K: return decode_q6_k(y.data(), row.data(), y.size() / 256);
    }
}

std::optional<uint64_t> find_nonfinite_block(GgmlType type, std::span<const std::byte> data) {
    const BlockFormat* format = block_format(type);
    ENSURE(format && data.size() % format->bytes == 0, "{} bytes of {}", data.size(), type_name(type));
    const uint64_t blocks = data.size() / format->bytes;
    if (type == GgmlType::F32) return find_exponent<uint32_t>(data.data(), blocks, 0x7f800000);
    if (type == GgmlType::F16) return find_exponent<uint16_t>(data.data(), blocks, 0x7c00);
    if (type == GgmlType::BF16) return find_exponent<uint16_t>(data.data(), blocks, 0x7f80);
    const bool has_min = type == GgmlType::Q4_K || type == GgmlType::Q5_K;
    const size_t d = type == GgmlType::Q6_K ? 208 : 0, dmin = has_min ? 2 : d;
    for (uint64_t b = 0; b < blocks; ++b) {
        const std::byte* block = data.data() + b * format->bytes;
        if (!half_is_finite(block + d) || !half_is_finite(block + dmin)) return b;
    }
    return std::nullopt;
}

} // namespace tq
