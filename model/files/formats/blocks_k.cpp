// ggml's K formats: blocks of 256 weights in 8 sub-blocks of 32 or 16 of 16. A block has one or two fp16 numbers, a sub-block a
// scale (and a minimum) of 4 to 8 bits in units of these, and a weight a level of 2 to 6 bits. Levels and scales are cut up and
// packed, so a value's bits are in two or three places; the comment before each decoder says where.
// The loops run over 16 or 32 weights with the same shifts, so that they vectorise. d is multiplied with the scale first, then
// with the level, as ggml does.
#include "model/files/formats/blocks_k.h"
#include "model/files/formats/block_reader.h"

namespace tq {
namespace {

struct ScaleMin {
    float scale, min;
};

// Returns the eight 6-bit (scale, minimum) pairs that Q4_K and Q5_K pack into 12 bytes, times the block's d and dmin.
std::array<ScaleMin, 8> decode_scales(const std::byte* x) {
    const float d = load_fp16(x), dmin = load_fp16(x + 2);
    const std::byte* s = x + 4;
    std::array<ScaleMin, 8> out;
    for (int j = 0; j < 4; ++j) {
        const int a = int(s[j]), b = int(s[j + 4]), c = int(s[j + 8]);
        out[j] = {d * float(a & 63), dmin * float(b & 63)};
        out[j + 4] = {d * float((c & 15) | (a >> 6) << 4), dmin * float((c >> 4) | (b >> 6) << 4)};
    }
    return out;
}

// Returns the sixteen 6-bit scales that Q3_K packs into 12 bytes, less 32, times the block's d: low nibbles of scales 0..7 and
// 8..15, then pairs of high bits, those of scale k at bits 2 (k / 4) of byte 8 + k % 4.
std::array<float, 16> decode_scales_q3_k(const std::byte* s, float d) {
    std::array<float, 16> out;
    for (int k = 0; k < 16; ++k) {
        const int low = int(s[k % 8]) >> 4 * (k / 8) & 15, high = int(s[8 + k % 4]) >> 2 * (k / 4) & 3;
        out[k] = d * float((low | high << 4) - 32);
    }
    return out;
}

} // namespace

// 16 bytes, each a scale in its low and a minimum in its high nibble; 64 bytes of bit pairs; half d, dmin. Each half of the block
// is four runs of 32, all in the same 32 bytes: the pair of run g is at bits 2g.
void decode_q2_k(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, x += 84) {
        const float d = load_fp16(x + 80), dmin = load_fp16(x + 82);
        for (int k = 0; k < 16; ++k, y += 16) {
            const auto qs = load<Bytes16>(x + 16 + 32 * (k / 8) + 16 * (k % 2));
            const float scale = d * float(int(x[k]) & 15), min = dmin * float(int(x[k]) >> 4);
            const int shift = 2 * (k / 2 % 4);
            for (int l = 0; l < 16; ++l) y[l] = scale * float(qs[l] >> shift & 3) - min;
        }
    }
}

// 32 bytes of third bits: bit j of byte l belongs to element 32 j + l; 64 bytes of bit pairs as in Q2_K; 12 bytes of scales; half
// d. Levels are -4..3.
void decode_q3_k(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, x += 110) {
        const auto scales = decode_scales_q3_k(x + 96, load_fp16(x + 108));
        for (int k = 0; k < 16; ++k, y += 16) {
            const auto high = load<Bytes16>(x + 16 * (k % 2)), qs = load<Bytes16>(x + 32 + 32 * (k / 8) + 16 * (k % 2));
            const int shift = 2 * (k / 2 % 4), j = k / 2;
            for (int l = 0; l < 16; ++l) y[l] = scales[k] * float(((qs[l] >> shift & 3) | (high[l] >> j & 1) << 2) - 4);
        }
    }
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

// Like Q4_K, with 32 bytes of fifth bits before the nibbles: bit j of byte l belongs to element 32 j + l
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
        const float d = load_fp16(x + 208);
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

// half d; the high bit pairs of eight scales; their low nibbles; eight runs of 16 bytes of nibbles: low 0..15, high 16..31
void decode_iq4_xs(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, x += 136) {
        const float d = load_fp16(x);
        const uint32_t high = load<uint16_t>(x + 2), low = load<uint32_t>(x + 4);
        for (int j = 0; j < 8; ++j, y += 32) {
            const float scale = d * float(int((low >> 4 * j & 15) | (high >> 2 * j & 3) << 4) - 32);
            const std::byte* qs = x + 8 + 16 * j;
            for (int i = 0; i < 16; ++i) {
                y[i] = scale * iq4_levels[size_t(qs[i] & std::byte(15))];
                y[16 + i] = scale * iq4_levels[size_t(qs[i] >> 4)];
            }
        }
    }
}

} // namespace tq
