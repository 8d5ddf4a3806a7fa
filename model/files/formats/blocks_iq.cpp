// Decoders of IQ1 to IQ3, and of TQ1_0, TQ2_0, Q1_0 and Q2_0. In an IQ format eight weights (four in IQ3) are an entry of a fixed
// grid, an index with a few bits of signs, and 16 or 32 weights share a multiplier. The traits in blocks_iq.h say for each format
// where index, signs and multipliers are; the loop is the same for all. TQ1_0 packs five weights of -1, 0 or 1 into a byte, TQ2_0
// has two bits for each. TQ1_0 needs a multiplication for each digit, so models in it become TQ2_0 when they are loaded. Q2_0 has
// two bits, too, in the order of the weights and with a scale for fewer of them; Q1_0, of -1 and 1, becomes Q2_0.
#include "model/files/formats/blocks_iq.h"

namespace tq {
namespace {

template <class Format> void decode(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += Format::bytes) {
        const float d = Format::d(x);
        const Multipliers all = Format::multipliers(x);
        for (size_t g = 0; g < 32; g++, y += 8) {
            const uint64_t levels = levels_of<Format>(x, g), half = g < 16 ? all.first : all.last;
            const float scale = Format::scale(d, half >> 8 * (g / 2 % 8) & 255);
            for (int i = 0; i < 8; i++) y[i] = scale * float(int(levels >> 8 * i & 255) - Format::offset);
        }
    }
}

// Returns digit n of five in base 3: a byte is ceil(number * 256 / 243), so that the digits are the first ones of a fraction.
uint32_t trit(std::byte byte, int n) {
    constexpr uint32_t powers[] = {1, 3, 9, 27, 81};
    return (uint32_t(byte) * powers[n] & 255) * 3 >> 8;
}

// Calls use(i, code of weight i): 32 bytes have five weights each, 32 apart, 16 bytes five, 16 apart, and 4 bytes four, 4 apart.
template <class Use> void each_trit(const std::byte* x, Use use) {
    for (int i = 0; i < 160; i++) use(i, trit(x[i % 32], i / 32));
    for (int i = 0; i < 80; i++) use(160 + i, trit(x[32 + i % 16], i / 16));
    for (int i = 0; i < 16; i++) use(240 + i, trit(x[48 + i % 4], i / 4));
}

} // namespace

void decode_iq2_xxs(float* y, const std::byte* x, size_t blocks) { decode<Iq2Xxs>(y, x, blocks); }
void decode_iq2_xs(float* y, const std::byte* x, size_t blocks) { decode<Iq2Xs>(y, x, blocks); }
void decode_iq2_s(float* y, const std::byte* x, size_t blocks) { decode<Iq2S>(y, x, blocks); }
void decode_iq3_xxs(float* y, const std::byte* x, size_t blocks) { decode<Iq3Xxs>(y, x, blocks); }
void decode_iq3_s(float* y, const std::byte* x, size_t blocks) { decode<Iq3S>(y, x, blocks); }
void decode_iq1_s(float* y, const std::byte* x, size_t blocks) { decode<Iq1S>(y, x, blocks); }
void decode_iq1_m(float* y, const std::byte* x, size_t blocks) { decode<Iq1M>(y, x, blocks); }

// 48 bytes of five trits, 4 of four; half d. Levels are -1, 0, 1.
void decode_tq1_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 54, y += 256) {
        const float d = load_fp16(x + 52);
        each_trit(x, [&](int i, uint32_t code) { y[i] = d * float(int(code) - 1); });
    }
}

// 64 bytes of bit pairs as in Q2_K; half d. Levels are -1 ... 2.
void decode_tq2_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 66) {
        const float d = load_fp16(x + 64);
        for (int i = 0; i < 256; i++) *y++ = d * float((int(x[32 * (i / 128) + i % 32]) >> 2 * (i / 32 % 4) & 3) - 1);
    }
}

// half d; 16 bytes, bit i % 8 of byte i / 8 set: weight i is d, else -d.
void decode_q1_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 18) {
        const float d = load_fp16(x);
        for (int i = 0; i < 128; i++) *y++ = (int(x[2 + i / 8]) >> i % 8 & 1) != 0 ? d : -d;
    }
}

// half d; 16 bytes, the pair at bits 2 (i % 4) of byte i / 4 that of weight i. Levels are -1 ... 2.
void decode_q2_0(float* y, const std::byte* x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 18) {
        const float d = load_fp16(x);
        for (int i = 0; i < 64; i++) *y++ = d * float((int(x[2 + i / 4]) >> 2 * (i % 4) & 3) - 1);
    }
}

void q1_0_to_q2_0(std::byte* to, const std::byte* from) {
    for (int half = 0; half < 2; half++, to += 18) {
        std::memcpy(to, from, 2);
        for (int i = 0; i < 16; i++) { // a bit becomes the higher one of a pair: level -1 or 1
            const int bits = int(from[2 + 8 * half + i / 2]) >> 4 * (i % 2);
            to[2 + i] = std::byte((bits & 1) << 1 | (bits & 2) << 2 | (bits & 4) << 3 | (bits & 8) << 4);
        }
    }
}

void tq1_0_to_tq2_0(std::byte* to, const std::byte* from) {
    std::memset(to, 0, 64);
    each_trit(from, [&](int i, uint32_t code) { to[32 * (i / 128) + i % 32] |= std::byte(code << 2 * (i / 32 % 4)); });
    std::memcpy(to + 64, from + 52, 2);
}

} // namespace tq
