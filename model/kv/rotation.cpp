// Rotations of vectors before they are quantised. wht is the fast one: signs, then the unnormalised Walsh-Hadamard matrix as
// log2(d) steps of butterflies, in the order of turboquant.md, because the stored bytes depend on the order of sums. haar is a
// dense orthogonal matrix, made as TurboQuant's authors make it (haar.h). wht by quarters, for keys of unequal bits, rotates four
// quarters apart, so that the bits of a quarter follow how fast RoPE turns its channels (channel_at). R is not normalised: its
// gain |R x|^2 / |x|^2 (d, d / 4 by quarters, 256 for haar) is a power of two, so dividing by it is exact. rotate_back() and the
// scale of queries do that.
#include "model/kv/rotation.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/kv/haar.h"
#include <algorithm>
#include <bit>

namespace tq {
namespace {

uint32_t mix(uint32_t x) { // a 32-bit finaliser: every input bit reaches every output bit
    x = (x ^ (x >> 16)) * 0x21f0aaadu;
    x = (x ^ (x >> 15)) * 0x735a2d97u;
    return x ^ (x >> 15);
}

Signs random_signs(uint32_t stream) {
    Signs signs;
    for (uint32_t w = 0; w < signs.size(); w++) signs[w] = mix((stream * 8 + w + 1) * 0x9e3779b9u);
    return signs;
}

void flip(std::span<float> x, const Signs& signs) {
    for (size_t i = 0; i < x.size(); i++) {
        const uint32_t sign = signs[i / 32] >> (i % 32) << 31;
        x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) ^ sign);
    }
}

// In place: strides 1 and 2 together, then four elements at a time, all read before one is written, so that a compiler can
// vectorise it. Without strides 1 and 2 the quarters are apart.
void hadamard(std::span<float> x, bool quarters = false) {
    for (size_t i = 0; !quarters && i < x.size(); i += 4) {
        const float a = x[i] + x[i + 1], b = x[i] - x[i + 1], c = x[i + 2] + x[i + 3], d = x[i + 2] - x[i + 3];
        x[i] = a + c;
        x[i + 1] = b + d;
        x[i + 2] = a - c;
        x[i + 3] = b - d;
    }
    for (size_t stride = 4; stride < x.size(); stride *= 2)
        for (size_t begin = 0; begin < x.size(); begin += 2 * stride)
            for (float* p = &x[begin]; p < &x[begin] + stride; p += 4) {
                float u[4], w[4];
                for (size_t i = 0; i < 4; i++) {
                    u[i] = p[i];
                    w[i] = p[i + stride];
                }
                for (size_t i = 0; i < 4; i++) {
                    p[i] = u[i] + w[i];
                    p[i + stride] = u[i] - w[i];
                }
            }
}

// Returns the channel that goes to place i of a vector rotated by quarters. RoPE turns channels c and c + d / 2 equally fast, and
// the more slowly the greater c is: c / (d / 8) is 3, 0, 2, 1 for i % 4 = 0, 1, 2, 3. (If it turns fewer channels, the first of
// the vector, the order is the same: no real weights have been measured.)
size_t channel_at(size_t i, size_t d) {
    const size_t eighth = d / 8, n = i / 4, quarter = i % 4, by_speed = quarter % 2 == 0 ? 3 - quarter / 2 : quarter / 2;
    return n / eighth * (d / 2) + by_speed * eighth + n % eighth;
}

// x[i] = before[channel_at(i)]; or, when `back`, the reverse.
void move_channels(std::span<float> x, bool back) {
    std::array<float, 256> before{};
    std::ranges::copy(x, before.begin());
    for (size_t i = 0, d = x.size(); i < d; i++) {
        const size_t channel = channel_at(i, d);
        x[back ? channel : i] = before[back ? i : channel];
    }
}

// Returns 16 Q: the gain is a power of two, and scales of Haar-rotated vectors are about as large as those of others.
std::shared_ptr<const std::vector<float>> dense_matrix(uint32_t head_dim, uint64_t seed) {
    std::vector<float> q = haar_matrix(head_dim, seed);
    for (float& v : q) v *= 16;
    return std::make_shared<const std::vector<float>>(std::move(q));
}

} // namespace

Signs rotation_signs(uint32_t layer, KvSide side) { return random_signs(layer * 2 + uint32_t(side)); }

Rotation make_rotation(RotationKind kind, uint32_t layer, KvSide side, uint32_t head_dim) {
    ENSURE(head_dim == 64 || head_dim == 128 || head_dim == 256, "head_dim {}", head_dim);
    const uint64_t seed = 42 + 1000 * uint64_t(layer) + (side == KvSide::value ? 500 : 0);
    return {kind, head_dim, rotation_signs(layer, side), kind == RotationKind::haar ? dense_matrix(head_dim, seed) : nullptr};
}

void check_rotation(KvType type, RotationKind kind) {
    if (is_unequal(type) && kind != RotationKind::wht)
        fail("{} is rotated in quarters of different bits, which {} cannot be: choose --kv-rotation wht or another "
             "type",
             name(type), name(kind));
}

Rotation make_rotation(RotationKind kind, uint32_t layer, KvSide side, uint32_t head_dim, KvType type) {
    check_rotation(type, kind);
    Rotation out = make_rotation(is_turboquant(type) ? kind : RotationKind::wht, layer, side, head_dim);
    out.quarters = is_unequal(type);
    return out;
}

void rotate(std::span<float> x, const Rotation& rotation) {
    if (rotation.kind == RotationKind::wht) {
        if (rotation.quarters) move_channels(x, false);
        flip(x, rotation.signs);
        return hadamard(x, rotation.quarters);
    }
    const size_t d = x.size();
    std::array<float, 256> y{};
    const float* row = rotation.matrix->data();
    for (size_t j = 0; j < d; j++, row += d)
        for (size_t i = 0; i < d; i++) {
            const float product = row[i] * x[j];
            y[i] = y[i] + product;
        }
    // An element that is almost cancelled counts as zero, so that no later square can be denormal.
    for (size_t i = 0; i < d; i++) x[i] = (std::bit_cast<uint32_t>(y[i]) >> 23 & 255) < 127 - 39 ? 0 : y[i];
}

void rotate_back(std::span<float> x, const Rotation& rotation) {
    const size_t d = x.size();
    if (rotation.kind == RotationKind::wht) {
        hadamard(x, rotation.quarters);
        flip(x, rotation.signs);
        if (rotation.quarters) move_channels(x, true);
    } else {
        std::array<float, 256> y{};
        for (size_t i = 0; i < d; i++)
            for (size_t j = 0; j < d; j++) {
                const float product = (*rotation.matrix)[i * d + j] * x[j];
                y[i] = y[i] + product;
            }
        for (size_t i = 0; i < d; i++) x[i] = y[i];
    }
    for (float& v : x) v *= 1 / rotation.gain();
}

} // namespace tq
