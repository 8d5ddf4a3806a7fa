#include "model/prefix/page_name.h"
#include "base/ensure.h"
#include <array>
#include <charconv>
#include <cstring>
#include <vector>

namespace tq {
namespace {

// Two sums like base/checksum.h's, with multipliers of MurmurHash3's finaliser, which are mixed at the end.
PageName hash(std::span<const uint64_t> words) {
    uint64_t a = 0x9e3779b97f4a7c15, b = 0xbf58476d1ce4e5b9 + words.size();
    for (const uint64_t word : words) {
        a = (a ^ word) * 0xff51afd7ed558ccd;
        a ^= a >> 32;
        b = (b + word) * 0xc4ceb9fe1a85ec53;
        b ^= (b >> 29) ^ (a << 7);
    }
    a = (a ^ (b >> 31)) * 0xc4ceb9fe1a85ec53;
    b = (b ^ (a >> 33)) * 0xff51afd7ed558ccd;
    return {a ^ (a >> 29), b ^ (b >> 32)};
}

} // namespace

std::string PageName::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

PageName name_of_owner(std::string_view text) {
    std::vector<uint64_t> words(2 + text.size() / 8);
    words[0] = text.size();
    if (!text.empty()) std::memcpy(&words[1], text.data(), text.size()); // the last word has zeros at its end
    return hash(words);
}

PageName name_of_page(PageName owner, PageName parent, std::span<const uint32_t> ids, bool cold) {
    std::vector<uint64_t> words{owner.high, owner.low, parent.high, parent.low, ids.size() * 2 + (cold ? 1 : 0)};
    for (const uint32_t id : ids) words.push_back(id);
    return hash(words);
}

bool parse_page_name(std::string_view text, PageName& name) {
    if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != text.npos) return false;
    std::from_chars(text.data(), text.data() + 16, name.high, 16);
    std::from_chars(text.data() + 16, text.data() + 32, name.low, 16);
    return true;
}

} // namespace tq
