#include "model/prefix/page_signature.h"
#include "base/error.h"
#include <algorithm>
#include <string_view>

namespace tq {
namespace {

constexpr std::string_view signature_mark = "tq-run signature";

std::span<const std::byte> mark_bytes() { return std::as_bytes(std::span(signature_mark)); }

} // namespace

void append_signature(std::vector<std::byte>& page, const PageSigner& sign) {
    const PageSignature signature = sign(page);
    page.insert(page.end(), mark_bytes().begin(), mark_bytes().end());
    page.insert(page.end(), signature.begin(), signature.end());
}

std::span<const std::byte> without_signature(std::span<const std::byte> page) {
    if (page.size() < page_signature_bytes) return page;
    const auto tail = page.last(page_signature_bytes);
    return std::ranges::equal(tail.first(signature_mark.size()), mark_bytes()) ? page.first(page.size() - tail.size()) : page;
}

std::span<const std::byte> signed_bytes(std::span<const std::byte> page, const PageSigner& sign) {
    const auto bytes = without_signature(page);
    if (bytes.size() == page.size()) fail("it is not signed");
    const PageSignature right = sign(bytes);
    const auto there = page.last(right.size());
    std::byte differ{0};
    for (size_t i = 0; i < right.size(); i++) differ |= right[i] ^ there[i];
    if (differ != std::byte{0}) fail("it is signed with another key");
    return bytes;
}

} // namespace tq
