#pragma once
#include <cstddef>

namespace tq {

// Returns the sum of a[i] b[i] over i < n, in sixteen accumulators: a fixed order that compilers vectorise.
inline float dot(const float* a, const float* b, size_t n) {
    float sums[16] = {};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++) sums[j] += a[i + j] * b[i + j];
    float sum = 0;
    for (; i < n; i++) sum += a[i] * b[i];
    for (const float s : sums) sum += s;
    return sum;
}

} // namespace tq
