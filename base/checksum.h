// Whether bytes are those that were written: against damage and mistakes, not against forgers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace tq {

// Of the bytes' 64-bit words w, the last one filled up with zeros: h = (h ^ w) * 0xff51afd7ed558ccd, then h ^= h >> 32; h begins
// with 0x9e3779b97f4a7c15. Each step can be undone, so no change of one word alone goes unseen.
uint64_t checksum(std::span<const std::byte> bytes);

} // namespace tq
