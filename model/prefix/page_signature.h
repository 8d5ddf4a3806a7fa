// The signature at the end of a page of a shared store: "tq-run signature" and the 32 bytes of PageSigner, of all bytes before.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace tq {

// Returns the signature of bytes, by a key that only those have whose pages are trusted.
using PageSignature = std::array<std::byte, 32>;
using PageSigner = std::function<PageSignature(std::span<const std::byte> bytes)>;

inline constexpr size_t page_signature_bytes = 16 + sizeof(PageSignature);

void append_signature(std::vector<std::byte>& page, const PageSigner& sign);

// Returns the bytes before the signature. Throws Error if there is none, or another one; takes as long whichever it is.
std::span<const std::byte> signed_bytes(std::span<const std::byte> page, const PageSigner& sign);

// Returns the bytes before the signature, or all if there is none. The signature is not compared.
std::span<const std::byte> without_signature(std::span<const std::byte> page);

} // namespace tq
