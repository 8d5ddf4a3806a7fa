#pragma once
#include <cstdint>

namespace tq {

inline constexpr uint64_t mib = uint64_t(1) << 20; // bytes

// Returns the least multiple of `unit` that is at least n.
constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

} // namespace tq
