// BLAKE2s of RFC 7693, without a key: a hash that nobody is known to forge, unlike base/checksum.h's.
#pragma once
#include <cstddef>
#include <span>

namespace tq {

// Writes the hash of the bytes, of 1 to 32 bytes, as many as `hash` has. To find other bytes with the hash of given ones takes
// 2^(8 hash.size()) tries, and any two with the same hash the square root of that.
void blake2s(std::span<std::byte> hash, std::span<const std::byte> bytes);

} // namespace tq
