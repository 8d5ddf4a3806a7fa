// Python's json.dumps: its separators, its escapes, its shortest floats.
// Templates write tools and arguments by json.dumps, and each byte counts: another separator or another float is other tokens
// than those of the training. Keys stay in the order of the request. The JSON comes from clients, and this code recurses, so it
// bounds the depth.
#include "model/text/python_json.h"
#include "base/error.h"
#include "model/text/unicode.h"
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tq {
namespace {

constexpr int max_depth = 256;

void append_string(std::string& out, std::string_view text) {
    out += '"';
    for (const char c : text) {
        switch (c) {
        case '"': out += "\\\""; break;
        case '\\': out += "\\\\"; break;
        case '\n': out += "\\n"; break;
        case '\r': out += "\\r"; break;
        case '\t': out += "\\t"; break;
        case '\f': out += "\\f"; break;
        case '\b': out += "\\b"; break;
        default:
            if (uint8_t(c) < 0x20)
                out += fmt::format("\\u{:04x}", uint8_t(c));
            else
                out += c;
        }
    }
    out += '"';
}

// Writes the repr: the shortest digits that read back the same; with an exponent below 1e-4 and from 1e16 on.
void append_float(std::string& out, double value) {
    if (std::isnan(value)) {
        out += "NaN";
        return;
    }
    if (std::isinf(value)) {
        out += value < 0 ? "-Infinity" : "Infinity";
        return;
    }
    const double size = std::abs(value);
    const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
    char buffer[32];
    const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
    const std::string_view digits(buffer, size_t(end - buffer));
    out += digits;
    if (plain && digits.find('.') == digits.npos) out += ".0";
}

void append(std::string& out, const nlohmann::ordered_json& value, int depth, int indent) {
    if (depth > max_depth) fail("the JSON is nested deeper than {} levels", max_depth);
    const auto line = [&](int of_depth) {
        std::string text = indent == 0 ? "" : "\n";
        return text.append(size_t(of_depth * indent), ' ');
    };
    if (value.is_structured() && !value.empty()) {
        out += value.is_object() ? '{' : '[';
        const char* separator = "";
        for (const auto& [key, item] : value.items()) {
            out += separator + line(depth + 1);
            if (value.is_object()) {
                append_string(out, key);
                out += ": ";
            }
            append(out, item, depth + 1, indent);
            separator = indent == 0 ? ", " : ",";
        }
        out += line(depth);
        out += value.is_object() ? '}' : ']';
    } else if (value.is_structured()) {
        out += value.is_object() ? "{}" : "[]";
    } else if (const auto* text = value.get_ptr<const std::string*>()) {
        append_string(out, *text);
    } else if (value.is_number_float()) {
        append_float(out, value.get<double>());
    } else {
        out += value.dump(); // null, true, false and integers are the same everywhere
    }
}

} // namespace

std::string python_json(const nlohmann::ordered_json& value, int indent) {
    std::string out;
    append(out, value, 0, indent);
    return out;
}

// White space is what Python's str.isspace() accepts: Unicode's White_Space and the four separators U+001C to U+001F. From the
// end the last character is found by going back over its continuation bytes.
std::string_view python_strip(std::string_view text) {
    const auto is_space = [](char32_t c) {
        const CharClass kind = char_class(c);
        return kind == CharClass::space || kind == CharClass::newline || (c >= 0x1C && c <= 0x1F);
    };
    while (!text.empty()) {
        const Utf8Step first = step_utf8(text, 0);
        if (!is_space(first.code_point)) break;
        text.remove_prefix(first.length);
    }
    while (!text.empty()) {
        size_t last = text.size() - 1;
        while (last > 0 && (uint8_t(text[last]) & 0xC0) == 0x80) --last;
        if (!is_space(step_utf8(text, last).code_point)) break;
        text = text.substr(0, last);
    }
    return text;
}

} // namespace tq
