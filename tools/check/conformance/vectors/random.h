// The random numbers of conformance rows and codec vectors.
#pragma once
#include "base/splitmix64.h"
#include "model/kv/conditioning.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tq::conformance {

// The same numbers on every machine, in integers and correctly rounded operations only.
struct Random {
    uint64_t state;

    uint64_t bits() { return splitmix64(state); }
    uint32_t below(uint32_t n) { return uint32_t((bits() >> 32) * n >> 32); }
    float normal(); // a sum of eight uniform numbers: of variance 1 and bounded by 5
    std::vector<float> normals(size_t n, float deviation = 1);
};

// Returns factors about 1, at most 30 times as large or small, and means about 0; nothing if there are no heads.
HeadConditions random_conditions(Random& random, uint32_t kv_heads, uint32_t head_dim);
// Returns scales of values, powers of two from 1/8 to 8.
std::vector<float> random_value_scales(Random& random, uint32_t kv_heads, uint32_t head_dim);

} // namespace tq::conformance
