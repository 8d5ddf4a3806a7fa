// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): the same numbers on every platform,
// unlike the standard library's distributions.
#pragma once
#include <cstdint>

namespace tq {

// Returns the next number, and advances the state, which begins as the seed.
inline uint64_t splitmix64(uint64_t& state) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

} // namespace tq
