// Names are hashes of what they stand for, so that whoever has the same tokens after the same parent computes the same name, on
// any machine. The hash is BLAKE2s with 128 bits: names are shared among clients, and nobody should be able to make another text
// with the name of a page.
// The hashed text begins with its kind, and numbers have fixed lengths in little-endian order. So two different things
// never have the same bytes.
#include "model/prefix/page_name.h"
#include "base/blake2s.h"
#include <array>
#include <charconv>
#include <concepts>
#include <fmt/format.h>
#include <vector>

namespace tq {
namespace {

using Bytes = std::vector<std::byte>;

void append(Bytes& to, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

template <std::unsigned_integral T> void append(Bytes& to, T number) {
    for (size_t byte = 0; byte < sizeof number; byte++) to.push_back(std::byte(number >> 8 * byte));
}

void append(Bytes& to, const PageName& name) {
    append(to, name.high);
    append(to, name.low);
}

uint64_t number_of(std::span<const std::byte, 8> bytes) {
    uint64_t number = 0;
    for (size_t byte = 0; byte < 8; byte++) number |= std::to_integer<uint64_t>(bytes[byte]) << 8 * byte;
    return number;
}

PageName hash(const Bytes& bytes) {
    std::array<std::byte, 16> name;
    blake2s(name, bytes);
    return {number_of(std::span(name).first<8>()), number_of(std::span(name).last<8>())};
}

} // namespace

std::string PageName::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

PageName name_of_owner(std::string_view text) {
    Bytes bytes;
    append(bytes, "tq-run owner\n");
    append(bytes, text);
    return hash(bytes);
}

PageName name_of_page(PageName owner, PageName parent, std::span<const uint32_t> ids, bool cold) {
    Bytes bytes;
    bytes.reserve(64 + ids.size() * 4);
    append(bytes, "tq-run page\n");
    append(bytes, owner);
    append(bytes, parent);
    append(bytes, uint32_t(ids.size()));
    append(bytes, uint32_t(cold));
    for (const uint32_t id : ids) append(bytes, id);
    return hash(bytes);
}

PageName name_of_state(PageName page) {
    Bytes bytes;
    append(bytes, "tq-run state\n");
    append(bytes, page);
    return hash(bytes);
}

bool parse_page_name(std::string_view text, PageName& name) {
    if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != text.npos) return false;
    std::from_chars(text.data(), text.data() + 16, name.high, 16);
    std::from_chars(text.data() + 16, text.data() + 32, name.low, 16);
    return true;
}

} // namespace tq
