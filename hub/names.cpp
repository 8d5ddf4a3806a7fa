#include "hub/names.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_hexadecimal(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_safe_part(std::string_view part) {
    const auto unsafe = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':'; };
    return !part.empty() && part.size() <= 255 && part != "." && part != ".." && std::none_of(part.begin(), part.end(), unsafe);
}

} // namespace

// The hub's own rule: letters, digits, _ - and ., where - and . stand between others and never twice.
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

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    return out;
}

} // namespace tq
