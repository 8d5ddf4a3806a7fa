// Loops over eight elements at a time, which vectorise although sums keep their order.
#include "model/files/formats/quantise_k.h"
#include "base/half.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tq {
namespace {

constexpr int lanes = 8, sub_block = 32, k_block = 256;
constexpr float nothing = 1e-30f; // what is no larger is 0 in fp16, and its inverse might be infinite

using Lanes = std::array<float, lanes>;
float sum(const Lanes& l) { return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])); }

// Calls f(i, lane) for i in [0, n).
template <int n, class F> void each(F f) {
    for (int i = 0; i < n; i += lanes)
        for (int lane = 0; lane < lanes; ++lane) f(i + lane, lane);
}

// Returns how much an error of each element counts: with the root mean square of its sub-block and its own magnitude, since
// large weights decide more of a sum; times its importance, unless none has any.
template <int n> std::array<float, n> weights_of(const float* x, const float* importance) {
    Lanes squares{};
    each<n>([&](int i, int lane) { squares[lane] += x[i] * x[i]; });
    const float rms = std::sqrt(sum(squares) / n);
    std::array<float, n> w;
    for (int i = 0; i < n; ++i) w[i] = rms + std::fabs(x[i]);
    const float greatest = importance ? *std::max_element(importance, importance + n) : 0;
    if (!(greatest > 0)) return w;
    // The greatest is 1 to 2 then, so that sums of products neither overflow nor vanish. A power of two changes no other bits.
    const float unit = std::ldexp(1.0f, -std::max(std::ilogb(greatest), -126));
    for (int i = 0; i < n; ++i) w[i] *= importance[i] * unit;
    return w;
}

// x ~ scale q + offset, with codes q of 0..top and an offset of at most 0, which the format stores as a minimum.
struct Line {
    float scale = 0, offset = 0, error = 0;
};

template <int top> float code(float x, float inverse, float offset) {
    const float q = (x - offset) * inverse;
    return float(int(std::min(std::max(q, 0.0f), float(top)) + 0.5f));
}

using Sub = std::array<float, sub_block>;

// The line of least squares through the codes that `from` gives.
template <int top> Line refit(const float* x, const Sub& w, float inverse, float offset, float sum_w, float sum_x) {
    Lanes of_q{}, of_qq{}, of_xq{};
    Sub q;
    each<sub_block>([&](int i, int lane) {
        q[i] = code<top>(x[i], inverse, offset);
        const float wq = w[i] * q[i];
        of_q[lane] += wq;
        of_qq[lane] += wq * q[i];
        of_xq[lane] += wq * x[i];
    });
    const float sum_q = sum(of_q), sum_qq = sum(of_qq), sum_xq = sum(of_xq), determinant = sum_w * sum_qq - sum_q * sum_q;
    Line line;
    if (determinant > 0) {
        line.scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
        line.offset = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
    }
    if (!(determinant > 0) || line.offset > 0) line = {sum_qq > 0 ? sum_xq / sum_qq : 0, 0, 0};
    Lanes error{};
    each<sub_block>([&](int i, int lane) {
        const float e = line.scale * q[i] + line.offset - x[i];
        error[lane] += w[i] * e * e;
    });
    line.error = sum(error);
    return line;
}

// The best line of those that begin with scales around the one that spans all elements, each fitted twice.
template <int top> Line best_line(const float* x, const Sub& w) {
    constexpr int steps = 9;
    const float least = std::min(0.0f, *std::min_element(x, x + sub_block)), greatest = *std::max_element(x, x + sub_block);
    if (greatest - least <= nothing) return {0, least, 0};
    Lanes of_w{}, of_x{};
    each<sub_block>([&](int i, int lane) {
        of_w[lane] += w[i];
        of_x[lane] += w[i] * x[i];
    });
    const float sum_w = sum(of_w), sum_x = sum(of_x);
    Line best{0, 0, INFINITY};
    for (int step = 0; step <= steps; ++step) {
        const float inverse = (float(top) + 0.2f * float(step - steps / 2)) / (greatest - least);
        Line line = refit<top>(x, w, inverse, least, sum_w, sum_x);
        if (line.scale > nothing) {
            const Line again = refit<top>(x, w, 1 / line.scale, line.offset, sum_w, sum_x);
            if (again.error < line.error) line = again;
        }
        if (line.error < best.error && line.scale >= 0) best = line;
    }
    return best;
}

uint16_t store_rounded(std::byte* to, float value) {
    const uint16_t bits = float_to_half(value);
    std::memcpy(to, &bits, 2);
    return bits;
}

// Of the eight sub-blocks of Q4_K and Q5_K: scales and minima of 6 bits.
using Small = std::array<int, 8>;

// Rounds values of 0..greatest to 0..63; returns the value of 1 as fp16 has it.
float in_six_bits(std::byte* to, const std::array<float, 8>& values, Small& small) {
    const float greatest = *std::ranges::max_element(values);
    const float unit = half_to_float(store_rounded(to, greatest / 63));
    for (size_t j = 0; j < small.size(); ++j) small[j] = unit > 0 ? std::min(63, int(values[j] / unit + 0.5f)) : 0;
    return unit;
}

// 12 bytes; as decode_scales in blocks_k.cpp reads them
void pack_scales(std::byte* s, const Small& scale, const Small& minimum) {
    for (int j = 0; j < 4; ++j) {
        s[j] = std::byte(scale[j] | (scale[j + 4] >> 4) << 6);
        s[j + 4] = std::byte(minimum[j] | (minimum[j + 4] >> 4) << 6);
        s[j + 8] = std::byte((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

template <int top> float error_of(const float* x, const Sub& w, float scale, float offset) {
    const float inverse = scale > 0 ? 1 / scale : 0;
    Lanes error{};
    each<sub_block>([&](int i, int lane) {
        const float e = scale * code<top>(x[i], inverse, offset) + offset - x[i];
        error[lane] += w[i] * e * e;
    });
    return sum(error);
}

// Tries the neighbours of a sub-block's scale and minimum, whose rounding a better pair may undo.
template <int top> void improve(const float* x, const Sub& w, float d, float dmin, int& scale, int& minimum) {
    float least = error_of<top>(x, w, d * float(scale), -dmin * float(minimum));
    const int scale0 = scale, minimum0 = minimum;
    for (int s = std::max(0, scale0 - 1); s <= std::min(63, scale0 + 1); ++s)
        for (int m = std::max(0, minimum0 - 1); m <= std::min(63, minimum0 + 1); ++m) {
            const float error = error_of<top>(x, w, d * float(s), -dmin * float(m));
            if (error < least) least = error, scale = s, minimum = m;
        }
}

// Writes d, dmin and the scales; returns the codes.
// Three steps. Each sub-block gets its line by itself, in fp32. Then the eight scales and minima are rounded to 6 bits in units
// of the block's fp16 numbers. At last each pair of rounded numbers is improved among its neighbours, and the codes are chosen
// for what is stored, not for what was wanted. The codes of the first step are thrown away.
template <int top> std::array<uint8_t, k_block> quantise_lines(std::byte* to, const float* x, const float* importance) {
    std::array<Sub, 8> w;
    std::array<float, 8> scales, minima;
    for (int j = 0; j < 8; ++j) {
        w[j] = weights_of<sub_block>(x + sub_block * j, importance ? importance + sub_block * j : nullptr);
        const Line line = best_line<top>(x + sub_block * j, w[j]);
        scales[j] = line.scale;
        minima[j] = -line.offset;
    }
    Small scale, minimum;
    const float d = in_six_bits(to, scales, scale), dmin = in_six_bits(to + 2, minima, minimum);
    std::array<uint8_t, k_block> codes{};
    if (!std::isfinite(d) || !std::isfinite(dmin)) return codes;
    for (int j = 0; j < 8; ++j) {
        const float* from = x + sub_block * j;
        improve<top>(from, w[j], d, dmin, scale[j], minimum[j]);
        const float step = d * float(scale[j]), inverse = step > 0 ? 1 / step : 0, offset = -dmin * float(minimum[j]);
        for (int i = 0; i < sub_block; ++i) codes[sub_block * j + i] = uint8_t(code<top>(from[i], inverse, offset));
    }
    pack_scales(to + 4, scale, minimum);
    return codes;
}

// 128 bytes: each run of 32 holds the low nibbles of 32 codes, and in its high nibbles those of the next 32.
void pack_nibbles(std::byte* to, const std::array<uint8_t, k_block>& codes) {
    for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 32; ++i) to[32 * j + i] = std::byte((codes[64 * j + i] & 15) | (codes[64 * j + 32 + i] & 15) << 4);
}

constexpr int group = 16, groups = k_block / group; // of Q6_K
using Group = std::array<float, group>;

float code_q6(float x, float inverse) { return float(int(std::min(std::max(x * inverse, -32.0f), 31.0f) + 32.5f) - 32); }

// The scale of the least weighted error of codes -32..31, of those that begin around the one at which the extreme is -32.
// For a fixed choice of codes q the error is sum w x^2 - (sum w x q)^2 / sum w q^2, at the scale sum w x q / sum w q^2. So the
// candidate with the greatest second term wins, and the first need not be computed.
float best_scale(const float* x, const Group& w) {
    constexpr int steps = 9;
    const float extreme = *std::max_element(x, x + group, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    if (std::fabs(extreme) <= nothing) return 0;
    float best = 0, most = 0; // of (sum w x q)^2 / sum w q^2, by which the error falls
    for (int step = -steps; step <= steps; ++step) {
        const float inverse = -(32 + 0.1f * float(step)) / extreme;
        Lanes of_xq{}, of_qq{};
        each<group>([&](int i, int lane) {
            const float q = code_q6(x[i], inverse), wq = w[i] * q;
            of_xq[lane] += wq * x[i];
            of_qq[lane] += wq * q;
        });
        const float xq = sum(of_xq), qq = sum(of_qq);
        if (qq > 0 && xq * xq > most * qq) most = xq * xq / qq, best = xq / qq;
    }
    return best;
}

} // namespace

void quantise_q4_k(std::byte* to, const float* x, const float* importance) {
    pack_nibbles(to + 16, quantise_lines<15>(to, x, importance));
}

void quantise_q5_k(std::byte* to, const float* x, const float* importance) {
    const auto codes = quantise_lines<31>(to, x, importance);
    for (int i = 0; i < 32; ++i) {
        int high = 0;
        for (int j = 0; j < 8; ++j) high |= (codes[32 * j + i] >> 4) << j;
        to[16 + i] = std::byte(high);
    }
    pack_nibbles(to + 48, codes);
}

void quantise_q6_k(std::byte* to, const float* x, const float* importance) {
    std::array<float, groups> scales;
    for (int k = 0; k < groups; ++k)
        scales[k] = best_scale(x + group * k, weights_of<group>(x + group * k, importance ? importance + group * k : nullptr));
    const float extreme = *std::ranges::max_element(scales, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float d = half_to_float(store_rounded(to + 208, extreme / -128));
    if (!std::isfinite(d)) return;
    std::array<int, k_block> codes{}; // 0..63
    for (int k = 0; k < groups; ++k) {
        const float ratio = d != 0 ? scales[k] / d : 0;
        const int scale = std::clamp(int(ratio + (ratio < 0 ? -0.5f : 0.5f)), -128, 127);
        to[192 + k] = std::byte(int8_t(scale));
        const float step = d * float(scale), inverse = step != 0 ? 1 / step : 0;
        for (int i = 0; i < group; ++i) codes[group * k + i] = int(code_q6(x[group * k + i], inverse)) + 32;
    }
    for (int n = 0; n < 2; ++n) // as decode_q6_k in blocks_k.cpp reads them
        for (int i = 0; i < 32; ++i) {
            const int* q = &codes[128 * n + i];
            to[64 * n + i] = std::byte((q[0] & 15) | (q[64] & 15) << 4);
            to[64 * n + 32 + i] = std::byte((q[32] & 15) | (q[96] & 15) << 4);
            to[128 + 32 * n + i] = std::byte(q[0] >> 4 | (q[32] >> 4) << 2 | (q[64] >> 4) << 4 | (q[96] >> 4) << 6);
        }
}

} // namespace tq
