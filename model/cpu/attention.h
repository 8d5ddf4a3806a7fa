// The partial results of attention on the CPU, and the scratch memory of a thread.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/host/cache.h"
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace tq::cpu {

using host::CacheSide, host::LayerCache, host::WindowVectors;

inline constexpr uint32_t kv_tile = 64;    // positions that are decoded together
inline constexpr uint32_t query_tiles = 4; // tiles of queries that share them

// The softmax over some positions for one query: sums = sum of exp(score - largest) * value, total without the value.
struct Partial {
    alignas(64) std::array<float, 256> sums;
    float largest, total;

    void scale(float by) {
        for (float& sum : sums) sum *= by;
    }
    void reset() {
        largest = -std::numeric_limits<float>::infinity();
        total = 0;
        sums.fill(0);
    }
};

// The queries begin .. end - 1 of a kv head: query i is head i % group() of the group that shares it, of token i / group().
struct Queries {
    const LayerCache& cache;
    std::span<const float> q; // [tokens][heads][head_dim]
    uint32_t heads, position, head, begin, end;

    // Returns the first position of the window of query i; without a window, the position after its own.
    uint32_t first_in_window(size_t i) const {
        const uint32_t own = position + uint32_t(i / group());
        return cache.window ? cache.window->positions.first(own) : own + 1;
    }
    size_t group() const { return heads / cache.k.heads; }
    size_t at(size_t i) const { return (i / group() * heads + head * group() + i % group()) * cache.k.head_dim(); }
};

// A thread's scratch memory, kept between calls.
struct AttentionScratch {
    AlignedFloats vectors, tiles, scores;
};

} // namespace tq::cpu
