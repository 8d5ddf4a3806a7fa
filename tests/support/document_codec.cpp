#include "tests/support/document_codec.h"
#include "tests/support/document_trellis.h"
#include "tests/support/rounded.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

namespace tq::test {
namespace {

using Floats = std::vector<float>;

bool is_negated(const Signs& signs, size_t i) { return (signs[i / 32] >> (i % 32) & 1) != 0; }

template <class T> void document_hadamard(std::span<T> y) { // the last butterfly joins the transforms of the halves
    const size_t half = y.size() / 2;
    if (half == 0) return;
    document_hadamard(y.first(half));
    document_hadamard(y.last(half));
    for (size_t i = 0; i < half; i++) {
        const T u = y[i], w = y[half + i];
        y[i] = u + w;
        y[half + i] = u - w;
    }
}

float document_sum(const Floats& a, size_t first = 0, size_t step = 1) { // halves added last are even and odd
    if (step == a.size()) return a[first];
    return document_sum(a, first, 2 * step) + document_sum(a, first + step, 2 * step);
}

double half_value(uint32_t bits) {
    const int exponent = int(bits >> 10 & 31), fraction = int(bits & 1023);
    return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

// The fp16 number at most 7bff that is nearest to a positive number v, ties to even. `compare`: the sign of t - v.
template <class Compare> uint16_t nearest_half(Compare compare) {
    uint32_t below = 0; // v is above the midpoint of `below` and the next number
    for (uint32_t step = 0x4000; step > 0; step /= 2) {
        const uint32_t next = below + step;
        if (next > 0x7bff) continue;
        const double sign = compare((half_value(next - 1) + half_value(next)) / 2);
        if (sign < 0 || (sign == 0 && next % 2 == 0)) below = next;
    }
    return uint16_t(below);
}

// Products of numbers of 24 bits and powers of two: exact in double.
uint16_t document_quotient(double n, double d, int e) {
    return nearest_half([=](double t) { return t * d - std::ldexp(n, e); });
}
uint16_t document_root(double n, double s, int e) {
    return nearest_half([=](double t) { return t * t * s - std::ldexp(n, 2 * e); });
}

float small_to_zero(float y) { return std::fabs(y) < 0x1p-39f ? 0.0f : y; }

Floats document_rotate(const Rotation& rotation, Floats y) {
    const size_t d = y.size();
    if (rotation.kind == RotationKind::wht) {
        for (size_t i = 0; i < d; i++)
            if (is_negated(rotation.signs, i)) y[i] = -y[i];
        document_hadamard(std::span(y));
        return y;
    }
    Floats out(d);
    for (size_t i = 0; i < d; i++) {
        float sum = 0;
        for (size_t j = 0; j < d; j++) {
            const float product = (*rotation.matrix)[j * d + i] * y[j];
            sum += product;
        }
        out[i] = small_to_zero(sum);
    }
    return out;
}

// Puts `count` bits of value at bit `at` of a little-endian stream.
void put_bits(std::vector<uint8_t>& bytes, size_t at, uint32_t count, uint32_t value) {
    for (uint32_t i = 0; i < count; i++) bytes[(at + i) / 8] |= uint8_t((value >> i & 1) << ((at + i) % 8));
}

uint32_t get_bits(const std::vector<uint8_t>& bytes, size_t at, uint32_t count) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; i++) value |= uint32_t(bytes[(at + i) / 8] >> ((at + i) % 8) & 1) << i;
    return value;
}

// The planes of a code of b bits, the first one lowest.
std::vector<uint32_t> planes(uint32_t b) {
    switch (b) {
    case 3: return {2, 1};
    case 5: return {4, 1};
    case 6: return {4, 2};
    default: return {b};
    }
}

std::vector<uint32_t> twice(std::vector<uint32_t> widths) {
    for (uint32_t& width : widths) width *= 2;
    return widths;
}

// Packs codes of b bits; if `paired`, numbers of 2 b bits, each of two codes.
std::vector<uint8_t> document_pack(uint32_t b, const std::vector<uint32_t>& codes, bool paired = false) {
    if (paired) b *= 2;
    std::vector<uint8_t> bytes(codes.size() * b / 8);
    uint32_t below = 0;
    for (const uint32_t width : paired ? twice(planes(b / 2)) : planes(b)) {
        for (size_t i = 0; i < codes.size(); i++) put_bits(bytes, codes.size() * below + i * width, width, codes[i] >> below);
        below += width;
    }
    return bytes;
}

struct Codes {
    std::vector<uint32_t> codes;
    std::vector<uint16_t> scales;
};

uint32_t level_of(KvType type, uint32_t index) {
    return type == KvType::tq8 ? 2 * index + 1 : document_codebook(type).levels[index];
}

uint32_t magnitude_of(KvType type, float y, float norm2, float largest, size_t d) {
    if (type == KvType::tq8) {
        uint32_t k = 127;
        while (std::fabs(y) * 128 < float(k) * largest) k--;
        return k;
    }
    uint32_t index = 0;
    for (const uint32_t threshold : document_codebook(type).thresholds) {
        const float limit = std::bit_cast<float>(threshold) * (128 / float(d)) * norm2;
        if (y * y >= limit) index++;
    }
    return index;
}

// The codes of a trellis; levels[i] is the factor of |y[i]|.
std::vector<uint32_t> document_trellis(KvType type, const Floats& y, float norm2, std::vector<int>& levels) {
    const double per_64 = type == KvType::tq2t ? 156816 : type == KvType::tq3t ? 142884 : 440896;
    const double square_unit = per_64 * double(y.size()) / 64;
    const auto codes = document_trellis_codes(type, y, float(half_value(document_root(norm2, square_unit, 0))));
    levels = document_trellis_levels(type, codes);
    for (size_t i = 0; i < y.size(); i++)
        if (y[i] < 0) levels[i] = -levels[i];
    return codes;
}

Codes document_turboquant(const KvCodec& codec, const Floats& y, int e) {
    const size_t d = y.size();
    const uint32_t sign_bit = 1u << (code_bits(codec.type) - 1);
    Codes out{std::vector<uint32_t>(d), {}};
    std::vector<int> levels(d);
    Floats squares(d), products(d);
    float largest = 0;
    for (size_t i = 0; i < d; i++) {
        squares[i] = y[i] * y[i];
        largest = std::max(largest, std::fabs(y[i]));
    }
    const float norm2 = document_sum(squares);
    double square_levels = 0;
    if (is_trellis(codec.type)) out.codes = document_trellis(codec.type, y, norm2, levels);
    for (size_t i = 0; i < d; i++) {
        if (!is_trellis(codec.type)) {
            const uint32_t index = magnitude_of(codec.type, y[i], norm2, largest, d);
            levels[i] = int(level_of(codec.type, index));
            out.codes[i] = index + (y[i] < 0 ? sign_bit : 0);
        }
        products[i] = std::fabs(y[i]) * float(levels[i]);
        square_levels += double(levels[i]) * levels[i];
    }
    const float product = document_sum(products);
    if (codec.scale_rule == ScaleRule::least_squares)
        out.scales = {document_quotient(product, square_levels, e)};
    else if (codec.scale_rule == ScaleRule::norm)
        out.scales = {document_root(norm2, square_levels, e)};
    else
        out.scales = {document_quotient(norm2, product, e)};
    return out;
}

// The type of a quarter as a vector of its own: there is none of seven bits, but a codebook.
KvType quarter_type(KvType type, size_t quarter) {
    const uint32_t b = code_bits(type), bits = std::array{b + 2, b - 2, b + 1, b - 1}[quarter];
    return KvType(KV_TURBOQUANT_TYPE(bits));
}

// The channels of a quarter: in each half of the vector an eighth. The last of an eighth turns the most slowly.
std::vector<size_t> channels_of(size_t quarter, size_t d) {
    const size_t eighth = std::array{3, 0, 2, 1}[quarter];
    std::vector<size_t> out;
    for (size_t c = 0; c < d; c++)
        if (c % (d / 2) / (d / 8) == eighth) out.push_back(c);
    return out;
}

Codes document_unequal(const KvCodec& codec, const Floats& y, int e) {
    const size_t d = y.size();
    Codes out{std::vector<uint32_t>(d / 2), std::vector<uint16_t>(4)};
    for (size_t quarter = 0; quarter < 4; quarter++) {
        Floats z;
        for (const size_t c : channels_of(quarter, d))
            z.push_back(is_negated(codec.rotation.signs, 4 * z.size() + quarter) ? -y[c] : y[c]);
        document_hadamard(std::span(z));
        if (std::ranges::all_of(z, [](float v) { return v == 0; })) continue;
        const Codes own = document_turboquant({quarter_type(codec.type, quarter), codec.scale_rule, {}}, z, e);
        for (size_t i = 0; i < d / 4; i++)
            out.codes[2 * i + quarter / 2] += own.codes[i]
                                              << (quarter % 2 == 0 ? 0 : code_bits(quarter_type(codec.type, quarter - 1)));
        out.scales[quarter] = own.scales[0];
    }
    return out;
}

uint16_t signed_half(float a, int e) { return uint16_t(document_quotient(std::fabs(a), 1, e) | (a < 0 ? 0x8000 : 0)); }

void document_q8_0(std::span<const float> y, int e, Codes& out) {
    float m = 0;
    for (const float v : y) m = std::max(m, std::fabs(v));
    const float scale = m / 127, inverse = m == 0 ? 0 : 1 / scale;
    for (const float v : y) out.codes.push_back(uint32_t(rounded(v * inverse)) & 255);
    out.scales.push_back(signed_half(scale, e));
}

void document_q4_0(std::span<const float> y, int e, Codes& out) {
    const float m = *std::ranges::max_element(y, {}, [](float v) { return std::fabs(v); }); // the first of them
    const float scale = m / -8, inverse = m == 0 ? 0 : -8 / m;
    for (const float v : y) out.codes.push_back(std::min(15u, uint32_t(v * inverse + 8.5f)));
    out.scales.push_back(m == 0 ? 0x8000 : uint16_t(document_quotient(std::fabs(scale), 1, e) | (m > 0 ? 0x8000 : 0)));
}

Codes document_blocks(const KvCodec& codec, const Floats& y, int e) {
    Codes out;
    for (size_t at = 0; at < y.size(); at += 32) {
        const auto block = std::span(y).subspan(at, 32);
        if (code_bits(codec.type) == 8)
            document_q8_0(block, e, out);
        else
            document_q4_0(block, e, out);
    }
    return out;
}

DocumentStored document_plain(KvType type, std::span<const float> x) {
    DocumentStored out;
    for (const float v : x) {
        const auto word = std::bit_cast<uint32_t>(v);
        uint32_t bits = word;
        if (type == KvType::bf16) { // the nearer of the two neighbours, the even one if both are equally near
            bits = word / 65536;
            if (std::isnan(v))
                bits |= 0x40;
            else if (word % 65536 > 32768 || (word % 65536 == 32768 && bits % 2 == 1))
                bits++;
        } else if (type == KvType::f16) {
            const double size = std::fabs(double(v));
            const uint32_t magnitude = std::isnan(v)   ? 0x7e00
                                       : size >= 65520 ? 0x7c00
                                       : size == 0     ? 0
                                                       : document_quotient(size, 1, 0);
            bits = magnitude | (word >> 16 & 0x8000);
        }
        for (int i = 0; i < (type == KvType::f32 ? 4 : 2); i++) out.codes.push_back(uint8_t(bits >> (8 * i)));
    }
    return out;
}

std::vector<double> document_rotate_back(const Rotation& rotation, std::vector<double> y) {
    const size_t d = y.size();
    std::vector<double> x(d);
    if (rotation.kind == RotationKind::wht) {
        document_hadamard(std::span(y));
        for (size_t i = 0; i < d; i++) x[i] = (is_negated(rotation.signs, i) ? -y[i] : y[i]) / double(d);
        return x;
    }
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) x[i] += double((*rotation.matrix)[i * d + j]) * y[j] / 256;
    return x;
}

double signed_half_value(uint16_t bits) { return half_value(bits & 0x7fff) * (bits > 0x7fff ? -1 : 1); }

double document_level(KvType type, uint32_t code) { // signed
    const uint32_t b = code_bits(type);
    if (family(type) == KV_BLOCKS) return b == 4 ? int(code) - 8 : int(code) - (code < 128 ? 0 : 256);
    const uint32_t sign_bit = 1u << (b - 1), level = level_of(type, code % sign_bit);
    return (code & sign_bit) != 0 ? -double(level) : level;
}

DocumentCodebook document_seven_bits() {
    DocumentCodebook out;
    for (uint32_t i = 0; i < 64; i++) {
        out.levels.push_back(2 * i + 1);
        if (i > 0) out.thresholds.push_back(std::bit_cast<uint32_t>(float(i * i * double(std::bit_cast<float>(0x37d3f061)))));
    }
    return out;
}

} // namespace

const DocumentCodebook& document_codebook(KvType type) {
    static const DocumentCodebook tq6{{1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                       33, 36, 39, 42, 45, 48, 51, 54, 58, 62, 66, 71, 77, 84, 93, 108},
                                      {0x381dc886, 0x391dc886, 0x39b18197, 0x3a1dc886, 0x3a768951, 0x3ab18197, 0x3af19b0d,
                                       0x3b1dc886, 0x3b47b1ca, 0x3b768951, 0x3b95278f, 0x3bb18197, 0x3bd052c1, 0x3bf19b0d,
                                       0x3c0aad3e, 0x3c1dc886, 0x3c376664, 0x3c58aeb0, 0x3c7cbd03, 0x3c91c8ae, 0x3ca695de,
                                       0x3cbcc611, 0x3cd45947, 0x3cf19b0d, 0x3d0aad3e, 0x3d1dc886, 0x3d34c06b, 0x3d52f155,
                                       0x3d79a0b3, 0x3d96dab2, 0x3dc28996}};
    static const DocumentCodebook tq5{{2, 6, 10, 14, 18, 22, 26, 31, 36, 41, 47, 53, 60, 69, 80, 97},
                                      {0x39145477, 0x3a145477, 0x3aa6df06, 0x3b145477, 0x3b67c3fa, 0x3ba6df06, 0x3beb507f,
                                       0x3c228fd2, 0x3c56b583, 0x3c8c37d8, 0x3cb5111b, 0x3ce73448, 0x3d16a81a, 0x3d48fe44,
                                       0x3d8dd0e9}};
    static const DocumentCodebook tq4{{5, 15, 25, 36, 48, 62, 79, 104},
                                      {0x3a0cc453, 0x3b0cc453, 0x3ba3af7d, 0x3c1b320c, 0x3c851196, 0x3cdaa3bb, 0x3d38256c}};
    static const DocumentCodebook tq3{{13, 40, 71, 114}, {0x3b0046d5, 0x3c0ca9e7, 0x3cc35dc1}};
    static const DocumentCodebook tq2{{30, 100}, {0x3bf6bada}}, seven_bits = document_seven_bits();
    switch (code_bits(type)) {
    case 7: return seven_bits;
    case 6: return tq6;
    case 5: return tq5;
    case 4: return tq4;
    case 3: return tq3;
    default: return tq2;
    }
}

DocumentStored document_encode(const KvCodec& codec, std::span<const float> x) {
    const size_t d = x.size();
    if (family(codec.type) < KV_TURBOQUANT) return document_plain(codec.type, x);
    float largest = 0;
    bool finite = true;
    for (const float v : x) {
        finite = finite && std::isfinite(v);
        largest = std::max(largest, std::fabs(v));
    }
    const bool zero = !finite || largest < 0x1p-25f;
    const int e = zero ? 0 : std::ilogb(largest);
    Floats y(d);
    for (size_t i = 0; i < d && !zero; i++) {
        const double scaled = std::ldexp(double(x[i]), -e);
        y[i] = std::fabs(scaled) < 0x1p-39 ? 0.0f : float(scaled);
    }
    if (is_unequal(codec.type)) {
        Codes out = document_unequal(codec, y, e);
        if (!finite) std::ranges::fill(out.scales, uint16_t(0x7e00));
        return {document_pack(code_bits(codec.type), out.codes, true), out.scales};
    }
    if (is_turboquant(codec.type) && !zero) y = document_rotate(codec.rotation, std::move(y));
    Codes out;
    if (family(codec.type) != KV_TURBOQUANT)
        out = document_blocks(codec, y, e);
    else if (zero)
        out = {std::vector<uint32_t>(d), std::vector<uint16_t>(1)};
    else
        out = document_turboquant(codec, y, e);
    if (!finite) std::ranges::fill(out.scales, uint16_t(0x7e00));
    return {document_pack(code_bits(codec.type), out.codes), out.scales};
}

static std::vector<double> decode_unequal(const KvCodec& codec, const DocumentStored& stored) {
    const size_t d = codec.head_dim();
    std::vector<double> x(d);
    for (size_t quarter = 0; quarter < 4; quarter++) {
        const KvType type = quarter_type(codec.type, quarter);
        std::vector<double> z(d / 4);
        for (size_t i = 0; i < d / 4; i++) {
            uint32_t both = 0, below = 0;
            for (const uint32_t width : twice(planes(code_bits(codec.type)))) {
                both |= get_bits(stored.codes, d / 2 * below + (2 * i + quarter / 2) * width, width) << below;
                below += width;
            }
            const uint32_t code =
                quarter % 2 == 0 ? both % (1u << code_bits(type)) : both >> code_bits(quarter_type(codec.type, quarter - 1));
            z[i] = document_level(type, code) * signed_half_value(stored.scales[quarter]);
        }
        document_hadamard(std::span(z));
        const std::vector<size_t> channels = channels_of(quarter, d);
        for (size_t i = 0; i < d / 4; i++)
            x[channels[i]] = (is_negated(codec.rotation.signs, 4 * i + quarter) ? -z[i] : z[i]) / double(d / 4);
    }
    return x;
}

std::vector<double> document_decode(const KvCodec& codec, const DocumentStored& stored) {
    if (is_unequal(codec.type)) return decode_unequal(codec, stored);
    const size_t d = codec.head_dim();
    const uint32_t b = code_bits(codec.type);
    std::vector<uint32_t> codes(d);
    uint32_t below = 0;
    for (const uint32_t width : planes(b)) {
        for (size_t i = 0; i < d; i++) codes[i] |= get_bits(stored.codes, d * below + i * width, width) << below;
        below += width;
    }
    std::vector<double> y(d);
    const std::vector<int> trellis = is_trellis(codec.type) ? document_trellis_levels(codec.type, codes) : std::vector<int>();
    for (size_t i = 0; i < d; i++) {
        const double level = is_trellis(codec.type) ? trellis[i] : document_level(codec.type, codes[i]);
        y[i] = level * signed_half_value(stored.scales[family(codec.type) == KV_BLOCKS ? i / 32 : 0]);
    }
    return is_turboquant(codec.type) ? document_rotate_back(codec.rotation, y) : y;
}

} // namespace tq::test
