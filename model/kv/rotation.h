// The rotations into the cache's space (turboquant.md): the keys and the values of a layer have one each.
#pragma once
#include "model/kv/types.h"
#include <memory>

namespace tq {

enum class KvSide : uint32_t { key = 0, value = 1 };

// A +-1 diagonal: channel i is negated when bit i % 32 of word i / 32 is set.
using Signs = std::array<uint32_t, 8>;

Signs rotation_signs(uint32_t layer, KvSide side);

struct Rotation {
    RotationKind kind = RotationKind::wht;
    uint32_t head_dim = 128;
    Signs signs{};
    std::shared_ptr<const std::vector<float>> matrix; // haar: 16 Q, [head_dim][head_dim]; R is its transpose
    bool quarters = false; // wht: for types of unequal bits, whose quarters, the places with the same i % 4, are rotated apart

    // Returns |rotate(x)|^2 / |x|^2: a power of two.
    float gain() const { return kind == RotationKind::haar ? 256.0f : float(quarters ? head_dim / KV_QUARTERS : head_dim); }
};

Rotation make_rotation(RotationKind kind, uint32_t layer, KvSide side, uint32_t head_dim);
// Throws Error if vectors of a type have no rotation of that kind.
void check_rotation(KvType type, RotationKind kind);
// Returns the one for vectors of a type, whose bits may be unequal. Throws Error as check_rotation() does.
Rotation make_rotation(RotationKind kind, uint32_t layer, KvSide side, uint32_t head_dim, KvType type);

// x = R x: H (signs * x) with the unnormalised Hadamard matrix H, or 16 Q^T x. By quarters: H of a quarter of the size on the
// places with the same i % 4. Channels go to these places by how fast RoPE turns them: the slowest to 0, then 2, 3, and 1.
// Products and sums in the order of turboquant.md.
void rotate(std::span<float> x, const Rotation& rotation);

// x = R^T x / gain: undoes rotate().
void rotate_back(std::span<float> x, const Rotation& rotation);

} // namespace tq
