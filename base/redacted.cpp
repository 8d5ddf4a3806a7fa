#include "base/redacted.h"
#include "base/printable.h"
#include <algorithm>
#include <array>

namespace tq {
namespace {

constexpr std::string_view mask = "***";

bool names_secret(std::string_view name) {
    constexpr std::array words{"key", "token", "secret", "password", "passwd", "credential"};
    const std::string lower = lowercase(name);
    return std::ranges::any_of(words, [&](const char* word) { return lower.find(word) != lower.npos; });
}

} // namespace

std::string redacted(std::string_view name, std::string_view value) {
    if (value.empty()) return "";
    if (names_secret(name)) return std::string(mask);
    constexpr std::string_view scheme_end = "://";
    std::string out;
    for (size_t found; (found = value.find(scheme_end)) != value.npos;) {
        out += value.substr(0, found + scheme_end.size());
        value.remove_prefix(found + scheme_end.size());
        // Up to the last @ before the next address: a password may have any other character in it.
        const size_t at = value.substr(0, value.find(scheme_end)).rfind('@');
        if (at == value.npos) continue;
        out += mask;
        value.remove_prefix(at);
    }
    return out.append(value);
}

} // namespace tq
