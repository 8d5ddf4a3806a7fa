// A checksum of bytes: it detects damage and mistakes, not forgeries.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace tq {

// Returns a hash h of the bytes' 64-bit words w, the last one padded with zeros: h = (h ^ w) * 0xff51afd7ed558ccd, then h ^= h
// >> 32; h begins with 0x9e3779b97f4a7c15. Each step is invertible, so a change of one word alone is always detected.
uint64_t checksum(std::span<const std::byte> bytes);

} // namespace tq
