// Vectors for a codec, 22 kinds. Besides normal ones there are vectors on which a nearly right encoder fails: heavy tails,
// single large channels, one-hot, equal magnitudes, denormals, huge numbers, zeros of both signs, NaN and infinities, exponents
// over the whole range; and vectors made to lie exactly on a decision of the encoder.
// The latter are built backwards, from the rotated side. The Walsh-Hadamard transform of integers is exact in fp32 as long as
// sums stay below 2^24, and it is its own inverse up to a factor. So integers y with the wanted property are chosen, and their
// transform with the signs undone is the vector (rotated_integers). threshold_tie needs one component whose square is a
// threshold's multiple of the squared norm; the other components must then have a given sum of squares, which square_parts fills
// greedily, largest squares last; and because the encoder adds squares as a tree of fp32 sums, the sum is computed in that order,
// and the attempt repeated until the tie is exact.
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq::conformance {
namespace {

float from_bits(uint64_t bits) { return std::bit_cast<float>(uint32_t(bits)); }

// 2^e m, m in [1, 2)
float magnitude(Random& random, int min_e, int max_e) {
    const int e = min_e + int(random.below(uint32_t(max_e - min_e + 1)));
    return from_bits(uint64_t(e + 127) << 23 | (random.bits() & 0x7fffff));
}

float with_sign(float x, Random& random) { return (random.bits() & 1) != 0 ? -x : x; }

// x = s * (H y) for integers y: their rotation is head_dim * y, without rounding while all sums stay below 2^24.
void rotated_integers(std::span<float> x, std::vector<int64_t> y, const Signs& signs) {
    for (size_t stride = 1; stride < y.size(); stride *= 2)
        for (size_t i = 0; i < y.size(); i++)
            if ((i & stride) == 0) {
                const int64_t u = y[i], w = y[i + stride];
                y[i] = u + w;
                y[i + stride] = u - w;
            }
    for (size_t i = 0; i < y.size(); i++) x[i] = float((signs[i / 32] >> (i % 32) & 1) != 0 ? -y[i] : y[i]);
}

int64_t root(int64_t n) { // rounded down
    auto r = int64_t(std::sqrt(double(n)));
    while (r * r > n) r--;
    return r;
}

void normals(std::span<float> x, Random& random, float scale = 1) {
    for (float& v : x) v = random.normal() * scale;
}

float& any(std::span<float> x, Random& random) { return x[random.below(uint32_t(x.size()))]; }

void fill_denormals(std::span<float> x, Random& random) {
    normals(x, random, 0.001f);
    for (float& v : x) {
        const uint32_t kind = random.below(8);
        if (kind < 2) v = from_bits(random.bits() & 0x807fffff);
        if (kind == 2) v = magnitude(random, -126, -45);
    }
}

void fill_exponents(std::span<float> x, Random& random) {
    const uint32_t min = random.below(120), spread = 1 + random.below(100);
    for (float& v : x) {
        const uint64_t exponent = min + random.below(spread);
        v = from_bits((random.bits() & 0x807fffff) | exponent << 23);
    }
}

// A single magnitude, in a random or a Walsh pattern of signs, with or without zeros.
void fill_equal(std::span<float> x, Random& random) {
    const float size = random.below(2) != 0 ? magnitude(random, -15, 15) : from_bits(uint64_t(112 + random.below(30)) << 23);
    const uint32_t pattern = random.below(3), walsh = random.below(uint32_t(x.size()));
    for (uint32_t i = 0; i < x.size(); i++) {
        x[i] = pattern == 2 ? ((std::popcount(i & walsh) & 1) != 0 ? -size : size) : with_sign(size, random);
        if (pattern == 1 && random.below(2) != 0) x[i] = 0;
    }
}

// The limits at which the whole vector becomes zero (2^-25), and at which an element does (2^-39 of the largest): two equal
// channels next to each other cancel in half of the rotation, and there the rest of the channels decides the signs.
void fill_at_zero_limits(std::span<float> x, const Signs& signs, Random& random) {
    const int e = -27 + int(random.below(4));
    for (float& v : x) v = with_sign(random.below(2) != 0 ? magnitude(random, e - 41, e - 38) : 0, random);
    const uint32_t pair = random.below(uint32_t(x.size() / 2)) * 2, flips = signs[pair / 32] >> (pair % 32);
    x[pair] = (flips & 1) != 0 ? -std::ldexp(1.0f, e) : std::ldexp(1.0f, e);
    x[pair + 1] = (flips & 2) != 0 ? -std::ldexp(1.0f, e) : std::ldexp(1.0f, e);
}

// v = (2m + 1) L in one channel: the exact scale v / L lies halfway between two fp16 numbers, subnormal ones too.
void fill_scale_tie(std::span<float> x, Random& random) {
    static constexpr uint32_t levels[] = {36, 40, 100}; // of a magnitude at the standard deviation
    std::ranges::fill(x, 0.0f);
    const uint32_t level = levels[random.below(3)];
    const uint32_t m = random.below(2) != 0 ? 1024 + random.below(1024) : random.below(1024);
    const int e = random.below(2) != 0 ? -25 : -25 + int(random.below(34));
    const float size = std::ldexp(float((2 * m + 1) * level), e);
    any(x, random) = with_sign(size, random);
}

// Fills y except y[j] with numbers below 4096 whose squares sum up to `rest`. False if that failed.
bool square_parts(std::span<int64_t> y, size_t j, int64_t rest, Random& random) {
    auto left = int64_t(y.size()) - 1;
    for (size_t i = 0; i < y.size(); i++) {
        if (i == j) continue;
        // The last twelve take the largest square each: the remainder is at most twice its root, in the end nothing.
        const int64_t part = left > 12 ? int64_t(random.below(uint32_t(2 * root(rest / left) + 1))) : root(rest);
        y[i] = std::min(part * part > rest ? 0 : part, int64_t(4095));
        rest -= y[i] * y[i];
        left--;
        if (random.below(2) != 0) y[i] = -y[i];
    }
    return rest == 0;
}

// Adds in the encoder's order: above 2^24 this rounds, and another order would round differently.
float tree_sum_of_squares(std::span<const int64_t> y) {
    std::vector<float> terms;
    for (const int64_t v : y) terms.push_back(float(v * v));
    for (size_t s = terms.size() / 2; s > 0; s /= 2)
        for (size_t i = 0; i < s; i++) terms[i] += terms[i + s];
    return terms[0];
}

void fill_threshold_tie(std::span<float> x, const Signs& signs, Random& random) {
    static constexpr KvType types[] = {KvType::tq4, KvType::tq3, KvType::tq2};
    const KvType type = types[random.below(3)];
    const uint32_t index = random.below((1u << magnitude_bits(type)) - 1);
    threshold_tie(x, type, index, signs, random);
    const float scale = std::ldexp(1.0f, int(random.below(60)) - 40); // some are then zero vectors or saturate
    for (float& v : x) v *= scale;
}

void fill_integers(std::span<float> x, Random& random, uint32_t limit) {
    for (float& v : x) v = float(int(random.below(2 * limit + 1)) - int(limit));
}

void fill_rotated_integers(std::span<float> x, const Signs& signs, Random& random) {
    const uint32_t limit = 1 + random.below(4);
    std::vector<int64_t> y(x.size());
    for (int64_t& v : y) v = int64_t(random.below(2 * limit + 1)) - limit;
    rotated_integers(x, y, signs);
}

struct Kind {
    const char* name;
    void (*fill)(std::span<float> x, const Signs& signs, Random& random);
};

#define KIND(name, ...)                                                                                                          \
    {                                                                                                                            \
        name, [](std::span<float> x, [[maybe_unused]] const Signs& signs, Random& random) { __VA_ARGS__; }                       \
    }
constexpr Kind kinds[] = {
    KIND("normal", normals(x, random)),
    KIND("normal, any scale", normals(x, random, magnitude(random, -28, 14))),
    KIND(
        "heavy tails",
        for (float& v
             : x) {
            const float n = random.normal();
            v = n / (float(random.below(65536)) + 1);
        }),
    KIND("large channels", normals(x, random); for (int i = 0; i < 4; i++) any(x, random) *= 30),
    KIND("one-hot", std::ranges::fill(x, 0.0f); any(x, random) = with_sign(magnitude(random, -20, 16), random)),
    KIND("equal magnitudes", fill_equal(x, random)),
    KIND("integers to 3", fill_integers(x, random, 3)),
    KIND("integers to 1000", fill_integers(x, random, 1000)),
    KIND("integers once rotated", fill_rotated_integers(x, signs, random)),
    KIND("denormals among others", fill_denormals(x, random)),
    KIND("denormals", for (float& v
                           : x) v = from_bits(random.bits() & 0x807fffff)),
    KIND("zeros", for (float& v
                       : x) v = with_sign(0.0f, random)),
    KIND("huge", for (float& v
                      : x) v = with_sign(magnitude(random, 110, 127), random)),
    KIND("uniform exponents", fill_exponents(x, random)),
    KIND("any bits", for (float& v
                          : x) v = from_bits(random.bits())),
    KIND("any bits but huge ones", for (float& v
                                        : x) v = from_bits(random.bits() & ~0x40000000ull)),
    KIND("halfway scales", fill_scale_tie(x, random)),
    KIND("on thresholds", fill_threshold_tie(x, signs, random)),
    KIND("beyond fp16", normals(x, random, magnitude(random, 13, 24))),
    KIND("at the limits of zero", fill_at_zero_limits(x, signs, random)),
    KIND("one NaN", normals(x, random); any(x, random) = from_bits(0x7f800001 + (random.bits() & 0x803ffffe))),
    KIND("one infinity", normals(x, random); any(x, random) = from_bits(0x7f800000 | (random.bits() & 0x80000000))),
};
#undef KIND
static_assert(std::size(kinds) == codec_vector_kinds);

} // namespace

uint32_t threshold_tie(std::span<float> x, KvType type, uint32_t index, const Signs& signs, Random& random) {
    const float threshold = from_bits(codebook(magnitude_bits(type)).thresholds[index]) * (128 / float(x.size()));
    while (true) {
        const uint32_t about = (1 << 24) + random.below((uint32_t(x.size()) << 20) - (1 << 24));
        const int64_t y = root(int64_t(threshold * float(about)));
        const int64_t norm2 = std::llround(double(y * y) / double(threshold));
        std::vector<int64_t> rotated(x.size());
        const uint32_t j = random.below(uint32_t(x.size()));
        rotated[j] = random.below(2) != 0 ? -y : y;
        if (!square_parts(rotated, j, norm2 - y * y, random) || threshold * tree_sum_of_squares(rotated) != float(y * y))
            continue;
        rotated_integers(x, rotated, signs);
        return j;
    }
}

std::vector<float> codec_vectors(uint32_t count, uint32_t head_dim, const Signs& signs, uint64_t seed) {
    std::vector<float> out(size_t(count) * head_dim);
    for (uint32_t i = 0; i < count; i++) {
        Random random{seed + i * 1315423911ull};
        kinds[i % codec_vector_kinds].fill(std::span(out).subspan(size_t(i) * head_dim, head_dim), signs, random);
    }
    return out;
}

std::string codec_vector_kind(uint32_t kind) { return kinds[kind].name; }

} // namespace tq::conformance
