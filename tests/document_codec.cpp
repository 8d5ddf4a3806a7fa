#include "tests/document_codec.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq::test {
namespace {

void document_hadamard(std::span<float> y) { // the last butterfly joins the transforms of the halves
    const size_t half = y.size() / 2;
    if (half == 0) return;
    document_hadamard(y.first(half));
    document_hadamard(y.last(half));
    for (size_t i = 0; i < half; i++) {
        const float u = y[i], w = y[half + i];
        y[i] = u + w;
        y[half + i] = u - w;
    }
}

float document_sum(const std::vector<float>& a, size_t first = 0, size_t step = 1) { // halves added last are even and odd
    if (step == a.size()) return a[first];
    return document_sum(a, first, 2 * step) + document_sum(a, first + step, 2 * step);
}

// Nearest multiple of fp16's spacing to n / d * 2^e: by a quotient of 60 bits whose last bit also says whether more followed.
uint16_t document_quotient(float n, float d, int e) {
    int n_exponent, d_exponent;
    const auto n_mantissa = uint64_t(std::frexp(n, &n_exponent) * 0x1p24f),
               d_mantissa = uint64_t(std::frexp(d, &d_exponent) * 0x1p24f);
    uint64_t q = (n_mantissa << 36) / d_mantissa;
    q |= (n_mantissa << 36) % d_mantissa != 0 ? 1 : 0;
    e += n_exponent - d_exponent - 36; // the value is q * 2^e
    const int bits = 64 - std::countl_zero(q);
    const int spacing = std::max(e + bits - 11, -24), shift = spacing - e; // at least 25: q has 36 bits or more
    if (e + bits > 17) return 0x7bff;
    if (shift > 62) return 0;
    uint64_t kept = q >> shift;
    const uint64_t rest = q & ((uint64_t(1) << shift) - 1), half = uint64_t(1) << (shift - 1);
    if (rest > half || (rest == half && kept % 2 == 1)) kept++;
    const double value = std::ldexp(double(kept), spacing);
    if (value >= 65520) return 0x7bff;
    if (value < 0x1p-14) return uint16_t(value * 0x1p24);
    int exponent;
    const double fraction = std::frexp(value, &exponent);
    return uint16_t(((exponent + 14) << 10) + int(fraction * 2048) - 1024);
}

// Puts `count` bits of value at bit `at` of a little-endian stream.
void put_bits(std::vector<uint8_t>& bytes, size_t at, uint32_t count, uint32_t value) {
    for (uint32_t i = 0; i < count; i++) bytes[(at + i) / 8] |= uint8_t((value >> i & 1) << ((at + i) % 8));
}

std::vector<uint8_t> document_pack(KvType type, const std::vector<uint32_t>& index, const std::vector<bool>& negative) {
    const size_t d = index.size();
    const uint32_t b = bits(type);
    std::vector<uint8_t> bytes(d * b / 8);
    for (size_t i = 0; i < d; i++) {
        put_bits(bytes, b == 4 ? 4 * i : (b - 1) * i, b - 1, index[i]);
        put_bits(bytes, b == 4 ? 4 * i + 3 : (b - 1) * d + i, 1, negative[i]);
    }
    return bytes;
}

} // namespace

const DocumentCodebook& document_codebook(KvType type) {
    static const DocumentCodebook tq4{{5, 15, 25, 36, 48, 62, 79, 104},
                                      {0x3a0cc453, 0x3b0cc453, 0x3ba3af7d, 0x3c1b320c, 0x3c851196, 0x3cdaa3bb, 0x3d38256c}};
    static const DocumentCodebook tq3{{13, 40, 71, 114}, {0x3b0046d5, 0x3c0ca9e7, 0x3cc35dc1}};
    static const DocumentCodebook tq2{{30, 100}, {0x3bf6bada}};
    return type == KvType::tq4 ? tq4 : type == KvType::tq3 ? tq3 : tq2;
}

DocumentStored document_encode(KvType type, std::span<const float> x, const Signs& signs) {
    const size_t d = x.size();
    const DocumentCodebook& book = document_codebook(type);
    std::vector<uint32_t> index(d);
    std::vector<bool> negative(d);
    float largest = 0;
    for (const float v : x) {
        if (!std::isfinite(v)) return {document_pack(type, index, negative), 0x7e00};
        largest = std::max(largest, std::fabs(v));
    }
    if (largest < 0x1p-25f) return {document_pack(type, index, negative), 0};

    const int e = std::ilogb(largest);
    std::vector<float> y(d), terms(d);
    for (size_t i = 0; i < d; i++) {
        const double scaled = std::ldexp(double(x[i]), -e);
        y[i] = std::fabs(scaled) < 0x1p-39 ? 0.0f : float((signs[i / 32] >> (i % 32) & 1) != 0 ? -scaled : scaled);
    }
    document_hadamard(y);
    for (size_t i = 0; i < d; i++) terms[i] = y[i] * y[i];
    const float norm2 = document_sum(terms);
    for (size_t i = 0; i < d; i++) {
        for (const uint32_t threshold : book.thresholds) {
            const float limit = std::bit_cast<float>(threshold) * (128 / float(d)) * norm2;
            if (terms[i] >= limit) index[i]++;
        }
        negative[i] = y[i] < 0;
    }
    for (size_t i = 0; i < d; i++) terms[i] = std::fabs(y[i]) * float(book.levels[index[i]]);
    return {document_pack(type, index, negative), document_quotient(norm2, document_sum(terms), e)};
}

} // namespace tq::test
