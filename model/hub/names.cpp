// The checks of names before they become paths, addresses or lines on a terminal. A file's name is part of a path on this
// machine, whichever it is, so it must be harmless on all of them: no backslash or colon, which mean something on Windows, no
// "..", and no character that would show another name than it is.
#include "model/hub/names.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_hexadecimal(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Whether the text has UTF-8 characters that control a terminal or change the direction of text: U+0080 to U+009F, U+061C, U+200E
// and U+200F, U+2028 to U+202E, U+2066 to U+2069.
bool has_hidden_controls(std::string_view text) {
    for (size_t i = 0; i + 1 < text.size(); i++) {
        const auto a = static_cast<unsigned char>(text[i]), b = static_cast<unsigned char>(text[i + 1]);
        const auto c = static_cast<unsigned char>(i + 2 < text.size() ? text[i + 2] : 0);
        if ((a == 0xc2 && b < 0xa0) || (a == 0xd8 && b == 0x9c)) return true;
        if (a == 0xe2 && b == 0x80 && (c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae))) return true;
        if (a == 0xe2 && b == 0x81 && c >= 0xa6 && c <= 0xa9) return true;
    }
    return false;
}

bool is_safe_part(std::string_view part) {
    const auto unsafe = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':'; };
    return !part.empty() && part.size() <= 255 && part != "." && part != ".." && std::none_of(part.begin(), part.end(), unsafe) &&
           !has_hidden_controls(part);
}

} // namespace

// The hub's own rule: letters, digits, _ - and ., - and . are between others and never doubled.
bool is_repository_name(std::string_view text) {
    int slashes = 0;
    bool after_sign = true;
    for (const char c : text) {
        const bool sign = c == '/' || c == '.' || c == '-';
        if (!(sign || c == '_' || is_letter_or_digit(c)) || (sign && after_sign)) return false;
        slashes += c == '/';
        after_sign = sign;
    }
    return !after_sign && slashes == 1 && text.size() <= 200;
}

bool is_commit(std::string_view text) { return text.size() == 40 && is_hexadecimal(text); }
bool is_object_id(std::string_view text) { return (text.size() == 40 || text.size() == 64) && is_hexadecimal(text); }

bool is_safe_file_name(std::string_view text) {
    if (text.size() > 1000) return false;
    while (true) {
        const size_t end = text.find('/');
        if (!is_safe_part(text.substr(0, end))) return false;
        if (end == std::string_view::npos) return true;
        text.remove_prefix(end + 1);
    }
}

std::string url_path(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (is_letter_or_digit(c) || std::string_view("-._~/").find(c) != std::string_view::npos)
            out += c;
        else
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    return out;
}

} // namespace tq
