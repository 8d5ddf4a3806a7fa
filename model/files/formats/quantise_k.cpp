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

constexpr int lanes = 8, k_block = 256;
constexpr float nothing = 1e-30f; // smaller numbers are 0 in fp16, and their inverse might be infinite

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
    const float max = importance ? *std::max_element(importance, importance + n) : 0;
    if (!(max > 0)) return w;
    // The greatest is 1 to 2 then, so that sums of products neither overflow nor vanish. A power of two changes no other bits.
    const float unit = std::ldexp(1.0f, -std::max(std::ilogb(max), -126));
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

template <int n> using Sub = std::array<float, n>; // of a sub-block of n elements

// The line of least squares through the codes that `inverse` and `offset` give.
template <int n, int top> Line refit(const float* x, const Sub<n>& w, float inverse, float offset, float sum_w, float sum_x) {
    Lanes of_q{}, of_qq{}, of_xq{};
    Sub<n> q;
    each<n>([&](int i, int lane) {
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
    each<n>([&](int i, int lane) {
        const float e = line.scale * q[i] + line.offset - x[i];
        error[lane] += w[i] * e * e;
    });
    line.error = sum(error);
    return line;
}

// A start of the search for a line.
struct Start {
    float inverse, offset;
};

// Many levels: scales around that of the line that spans all elements. Four: lines that end before or after the least and the
// greatest element, because a clipped end may cost less than the steps that would reach it, and one outlier less than all else.
template <int top> auto starts(float min, float range) {
    constexpr bool is_few = top == 3;
    std::array<Start, is_few ? 8 : 10> out;
    for (int k = 0; k < int(out.size()); ++k) {
        constexpr std::array beyond{0.3f, 0.1f, 0.0f, -0.12f};
        const float low = k < 4 ? 0 : 0.12f; // shares of the range
        if constexpr (is_few)
            out[k] = {float(top) / ((1 - low + beyond[k % 4]) * range), min + low * range};
        else
            out[k] = {(float(top) + 0.2f * float(k - 4)) / range, min};
    }
    return out;
}

// The best of the lines from starts(), each fitted twice.
template <int n, int top> Line best_line(const float* x, const Sub<n>& w) {
    const float min = std::min(0.0f, *std::min_element(x, x + n)), max = *std::max_element(x, x + n);
    if (max - min <= nothing) return {0, min, 0};
    Lanes of_w{}, of_x{};
    each<n>([&](int i, int lane) {
        of_w[lane] += w[i];
        of_x[lane] += w[i] * x[i];
    });
    const float sum_w = sum(of_w), sum_x = sum(of_x);
    Line best{0, 0, INFINITY};
    for (const auto& [inverse, offset] : starts<top>(min, max - min)) {
        Line line = refit<n, top>(x, w, inverse, offset, sum_w, sum_x);
        if (line.scale > nothing) {
            const Line again = refit<n, top>(x, w, 1 / line.scale, line.offset, sum_w, sum_x);
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

using Codes = std::array<uint8_t, k_block>;

// A block of lines, as a format stores it: scales and minima of its sub-blocks in units of two fp16 numbers, and the codes.
template <int n> struct Lines {
    static constexpr size_t count = k_block / n;

    std::array<int, count> scale{}, minimum{};
    Codes codes{};
};

// Rounds values of 0..max to 0..max_code; returns the value of 1 as fp16 has it.
template <int max_code, size_t count>
float round_to(std::byte* to, const std::array<float, count>& values, std::array<int, count>& small) {
    const float max = *std::ranges::max_element(values);
    const float unit = half_to_float(store_rounded(to, max / max_code));
    for (size_t j = 0; j < count; ++j) small[j] = unit > 0 ? std::min(max_code, int(values[j] / unit + 0.5f)) : 0;
    return unit;
}

// 12 bytes; as decode_scales in blocks_k.cpp reads them
void pack_scales(std::byte* s, const Lines<32>& lines) {
    const auto& [scale, minimum, codes] = lines;
    for (int j = 0; j < 4; ++j) {
        s[j] = std::byte(scale[j] | (scale[j + 4] >> 4) << 6);
        s[j + 4] = std::byte(minimum[j] | (minimum[j + 4] >> 4) << 6);
        s[j + 8] = std::byte((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

template <int n, int top> float error_of(const float* x, const Sub<n>& w, float scale, float offset) {
    const float inverse = scale > 0 ? 1 / scale : 0;
    Lanes error{};
    each<n>([&](int i, int lane) {
        const float e = scale * code<top>(x[i], inverse, offset) + offset - x[i];
        error[lane] += w[i] * e * e;
    });
    return sum(error);
}

// Tries the neighbours of a sub-block's scale and minimum, whose rounding a better pair may undo.
template <int n, int top, int max_code>
void improve(const float* x, const Sub<n>& w, float d, float dmin, int& scale, int& minimum) {
    float min_error = error_of<n, top>(x, w, d * float(scale), -dmin * float(minimum));
    const int scale0 = scale, minimum0 = minimum;
    for (int s = std::max(0, scale0 - 1); s <= std::min(max_code, scale0 + 1); ++s)
        for (int m = std::max(0, minimum0 - 1); m <= std::min(max_code, minimum0 + 1); ++m) {
            const float error = error_of<n, top>(x, w, d * float(s), -dmin * float(m));
            if (error < min_error) min_error = error, scale = s, minimum = m;
        }
}

// Writes d and dmin, each of 2 bytes; returns the rest. Codes are 0..top, scales and minima 0..max_code.
// Three steps. Each sub-block gets its line by itself, in fp32. Then the scales and minima are rounded to whole numbers in units
// of the block's fp16 numbers. At last each pair of rounded numbers is improved among its neighbours, and the codes are chosen
// for the stored numbers, not for the exact ones. The codes of the first step are thrown away.
template <int n, int top, int max_code> Lines<n> quantise_lines(std::byte* to, const float* x, const float* importance) {
    constexpr size_t count = Lines<n>::count;
    std::array<Sub<n>, count> w;
    std::array<float, count> scales, minima;
    for (size_t j = 0; j < count; ++j) {
        w[j] = weights_of<n>(x + n * j, importance ? importance + n * j : nullptr);
        const Line line = best_line<n, top>(x + n * j, w[j]);
        scales[j] = line.scale;
        minima[j] = -line.offset;
    }
    Lines<n> out;
    const float d = round_to<max_code>(to, scales, out.scale), dmin = round_to<max_code>(to + 2, minima, out.minimum);
    if (!std::isfinite(d) || !std::isfinite(dmin)) return {};
    for (size_t j = 0; j < count; ++j) {
        const float* from = x + n * j;
        improve<n, top, max_code>(from, w[j], d, dmin, out.scale[j], out.minimum[j]);
        const float step = d * float(out.scale[j]), inverse = step > 0 ? 1 / step : 0, offset = -dmin * float(out.minimum[j]);
        for (int i = 0; i < n; ++i) out.codes[n * j + i] = uint8_t(code<top>(from[i], inverse, offset));
    }
    return out;
}

// 64 bytes: in each half of the block four runs of 32 share 32 bytes, and the pair of bits of run g is at bits 2g.
void pack_pairs(std::byte* to, const Codes& codes, int shift) {
    for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 32; ++i) {
            int pairs = 0;
            for (int g = 0; g < 4; ++g) pairs |= (codes[128 * half + 32 * g + i] >> shift & 3) << 2 * g;
            to[32 * half + i] = std::byte(pairs);
        }
}

// 32 bytes: bit j of byte i belongs to element 32 j + i.
void pack_bits(std::byte* to, const Codes& codes, int shift) {
    for (int i = 0; i < 32; ++i) {
        int bits = 0;
        for (int j = 0; j < 8; ++j) bits |= (codes[32 * j + i] >> shift & 1) << j;
        to[i] = std::byte(bits);
    }
}

// 128 bytes: each run of 32 holds the low nibbles of 32 codes, and in its high nibbles those of the next 32.
void pack_nibbles(std::byte* to, const Codes& codes) {
    for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 32; ++i) to[32 * j + i] = std::byte((codes[64 * j + i] & 15) | (codes[64 * j + 32 + i] & 15) << 4);
}

constexpr int group = 16, groups = k_block / group; // of formats without minima

template <int half> float signed_code(float x, float inverse) {
    return float(int(std::min(std::max(x * inverse, -float(half)), float(half - 1)) + (half + 0.5f)) - half);
}

// The scale of the least weighted error of codes -half..half - 1, among candidates around the one at which the extreme is -half.
// For a fixed choice of codes q the error is sum w x^2 - (sum w x q)^2 / sum w q^2, at the scale sum w x q / sum w q^2. So the
// candidate with the greatest second term wins, and the first need not be computed.
template <int half> float best_scale(const float* x, const Sub<group>& w) {
    constexpr int steps = half > 4 ? 9 : 4; // of few codes fewer candidates differ
    constexpr float width = half > 4 ? 0.1f : 0.25f;
    const float extreme = *std::max_element(x, x + group, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    if (std::fabs(extreme) <= nothing) return 0;
    float best = 0, max_gain = 0; // of (sum w x q)^2 / sum w q^2, by which the error falls
    for (int step = -steps; step <= steps; ++step) {
        const float inverse = -(half + width * float(step)) / extreme;
        Lanes of_xq{}, of_qq{};
        each<group>([&](int i, int lane) {
            const float q = signed_code<half>(x[i], inverse), wq = w[i] * q;
            of_xq[lane] += wq * x[i];
            of_qq[lane] += wq * q;
        });
        const float xq = sum(of_xq), qq = sum(of_qq);
        if (qq > 0 && xq * xq > max_gain * qq) max_gain = xq * xq / qq, best = xq / qq;
    }
    return best;
}

// A block of scales without minima, as a format stores it. Codes are 0..2 half - 1 and stand for -half..half - 1.
struct Scales {
    std::array<int, groups> scale{};
    Codes codes{};
};

// Writes d, 2 bytes; returns the rest. Scales are -most..most - 1.
template <int half, int max_code> Scales quantise_scales(std::byte* to, const float* x, const float* importance) {
    std::array<float, groups> scales;
    for (int k = 0; k < groups; ++k)
        scales[k] =
            best_scale<half>(x + group * k, weights_of<group>(x + group * k, importance ? importance + group * k : nullptr));
    const float extreme = *std::ranges::max_element(scales, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float d = half_to_float(store_rounded(to, extreme / -max_code));
    Scales out;
    if (!std::isfinite(d)) return out;
    for (int k = 0; k < groups; ++k) {
        const float ratio = d != 0 ? scales[k] / d : 0;
        out.scale[k] = std::clamp(int(ratio + (ratio < 0 ? -0.5f : 0.5f)), -max_code, max_code - 1);
        const float step = d * float(out.scale[k]), inverse = step != 0 ? 1 / step : 0;
        for (int i = 0; i < group; ++i)
            out.codes[group * k + i] = uint8_t(int(signed_code<half>(x[group * k + i], inverse)) + half);
    }
    return out;
}

} // namespace

// Each layout is as the decoder in blocks_k.cpp reads it.

void quantise_q2_k(std::byte* to, const float* x, const float* importance) {
    const auto lines = quantise_lines<16, 3, 15>(to + 80, x, importance);
    for (size_t k = 0; k < lines.count; ++k) to[k] = std::byte(lines.scale[k] | lines.minimum[k] << 4);
    pack_pairs(to + 16, lines.codes, 0);
}

void quantise_q3_k(std::byte* to, const float* x, const float* importance) {
    const Scales scales = quantise_scales<4, 32>(to + 108, x, importance);
    pack_bits(to, scales.codes, 2);
    pack_pairs(to + 32, scales.codes, 0);
    std::array<int, 12> packed{};
    for (int k = 0; k < groups; ++k) {
        const int scale = scales.scale[k] + 32;
        packed[k % 8] |= (scale & 15) << 4 * (k / 8);
        packed[8 + k % 4] |= (scale >> 4) << 2 * (k / 4);
    }
    std::ranges::transform(packed, to + 96, [](int byte) { return std::byte(byte); });
}

void quantise_q4_k(std::byte* to, const float* x, const float* importance) {
    const auto lines = quantise_lines<32, 15, 63>(to, x, importance);
    pack_scales(to + 4, lines);
    pack_nibbles(to + 16, lines.codes);
}

void quantise_q5_k(std::byte* to, const float* x, const float* importance) {
    const auto lines = quantise_lines<32, 31, 63>(to, x, importance);
    pack_scales(to + 4, lines);
    pack_bits(to + 16, lines.codes, 4);
    pack_nibbles(to + 48, lines.codes);
}

void quantise_q6_k(std::byte* to, const float* x, const float* importance) {
    const Scales scales = quantise_scales<32, 128>(to + 208, x, importance);
    std::ranges::transform(scales.scale, to + 192, [](int scale) { return std::byte(int8_t(scale)); });
    for (int n = 0; n < 2; ++n)
        for (int i = 0; i < 64; ++i) {
            const uint8_t* q = &scales.codes[128 * n + i];
            to[64 * n + i] = std::byte((q[0] & 15) | (q[64] & 15) << 4);
        }
    pack_pairs(to + 128, scales.codes, 4);
}

} // namespace tq
