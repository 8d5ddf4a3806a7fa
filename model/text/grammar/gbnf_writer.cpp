// Writes GBNF rule by rule, for json_schema.cpp and what belongs to it. The rules of JSON itself (json_rules) are written when
// one of them is first asked for, together with the rules that it needs; their names are taken, and a schema's property that is
// called "string" gets another.
// The rules of JSON are narrower than JSON in two ways that keep a model from running on. Numbers have at most 16 digits before
// the point and 15 behind it. White space is one space, or up to two newlines with an indentation of up to 20 characters.
#include "model/text/grammar/gbnf_writer.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <array>
#include <span>

namespace tq::grammar {
namespace {

struct JsonRule {
    std::string_view name, body;
    std::array<std::string_view, 6> needs;
};

// Numbers have as many digits as a double holds, so that they end; an escaped surrogate comes with its other half.
constexpr JsonRule json_rules[] = {
    {"space", R"(" "? | "\n"{1,2} [ \t]{0,20})", {}},
    {"char",
     R"re([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-ce-fA-CE-F] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | )re"
     R"re([dD] [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2})))re",
     {}},
    {"string", R"("\"" char* "\"")", {"char"}},
    {"integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))", {}},
    {"number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [+-]? [0-9]{1,3})?)", {}},
    {"boolean", R"("true" | "false")", {}},
    {"null", R"("null")", {}},
    {"value", "object | array | string | number | boolean | null", {"object", "array", "string", "number", "boolean", "null"}},
    {"member", R"(string ":" space value)", {"string", "space", "value"}},
    {"object", R"("{" space (member ("," space member)* space)? "}")", {"space", "member"}},
    {"array", R"("[" space (value ("," space value)* space)? "]")", {"space", "value"}},
};

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

void append_class_char(std::string& out, char32_t c) {
    if (c >= 0x20 && c < 0x7F && std::u32string_view(U"\\]^-[\"").find(c) == std::u32string_view::npos)
        out += char(c);
    else if (c < 0x20 || (c >= 0x7F && c < 0xA0))
        out += fmt::format("\\x{:02X}", uint32_t(c));
    else if (c < 0x7F)
        (out += '\\') += char(c);
    else
        out += c <= 0xFFFF ? fmt::format("\\u{:04X}", uint32_t(c)) : fmt::format("\\U{:08X}", uint32_t(c));
}

} // namespace

std::string gbnf_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (uint8_t(c) < 0x20 || c == 0x7F)
            out += fmt::format("\\x{:02X}", uint8_t(c));
        else
            out += c;
    }
    return out + '"';
}

// Writes sorted texts that differ, and are alike up to byte `from`. `depth`: nesting of the brackets around it. An enumeration of
// a thousand texts as plain alternatives would be a thousand ways that the matcher follows at once, at the first byte already. As
// a tree of common beginnings it is one way at nearly any place. Branches are cut between characters, never within one, for the
// result is a text of GBNF. A tree is flat below the maximum depth of groups.
static std::string any_sorted_text(std::span<const std::string> texts, size_t from, uint32_t depth) {
    constexpr uint32_t max_depth = 24;
    look_at_interrupt();
    const std::string &first = texts.front(), &last = texts.back();
    if (texts.size() == 1) return gbnf_text(std::string_view(first).substr(from));
    size_t same = size_t(std::ranges::mismatch(first, last).in1 - first.begin());             // of all, as they are sorted
    while (same > from && same < last.size() && (uint8_t(last[same]) & 0xC0) == 0x80) --same; // whole characters
    std::string out;
    for (size_t begin = 0; begin < texts.size();) {
        size_t end = begin + 1;
        const size_t length = same < texts[begin].size() ? step_utf8(texts[begin], same).length : 0;
        const std::string_view next = std::string_view(texts[begin]).substr(same, length);
        while (end < texts.size() && length > 0 && depth < max_depth && std::string_view(texts[end]).substr(same, length) == next)
            ++end;
        out += (begin == 0 ? "" : " | ") + any_sorted_text(texts.subspan(begin, end - begin), same, depth + 1);
        begin = end;
    }
    return same > from ? gbnf_text(std::string_view(first).substr(from, same - from)) + " (" + out + ")" : out;
}

std::string any_text_gbnf(std::vector<std::string> texts) {
    constexpr size_t few = 64; // these stay in the order in which they were given, for readers of the grammar
    if (texts.size() > few) {
        std::ranges::sort(texts);
        texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
        return any_sorted_text(texts, 0, 0);
    }
    std::string out;
    for (const std::string& text : texts) out += (out.empty() ? "" : " | ") + gbnf_text(text);
    return out;
}

std::string gbnf_class(const std::vector<CharRange>& ranges, bool negated) {
    std::string out = negated ? "[^" : "[";
    for (const CharRange& range : ranges) {
        append_class_char(out, range.first);
        if (range.last == range.first) continue;
        if (range.last > range.first + 1) out += '-';
        append_class_char(out, range.last);
    }
    return out + ']';
}

// Names are kept readable, since `tq-run grammar` shows them. numbers_ has the last number of each name: without it, a schema
// with n properties of one name would search n times through up to n numbers.
std::string GbnfWriter::new_name(std::string_view requested) {
    std::string name;
    for (const char c : requested.substr(0, 60)) name += is_letter_or_digit(c) ? c : '-';
    if (name.empty()) name = "rule";
    const bool is_json = std::ranges::any_of(json_rules, [&](const JsonRule& rule) { return rule.name == name; });
    std::string free = is_json ? name + "-1" : name;
    if (names_.insert(free).second) return free;
    uint32_t& number = numbers_.try_emplace(name, 1).first->second;
    do free = fmt::format("{}-{}", name, ++number);
    while (!names_.insert(free).second);
    return free;
}

void GbnfWriter::define(std::string_view name, std::string_view body) {
    constexpr size_t for_json = 2048; // of the rules of JSON, so that a value that may be any has always room
    look_at_interrupt(1 + body.size() / 64);
    const bool is_json = std::ranges::find(json_rules, name, &JsonRule::name) != std::end(json_rules);
    if (text_.size() + name.size() + body.size() > max_gbnf_bytes - (is_json ? 16 : for_json))
        fail("the JSON schema is too large: its grammar would have more than {} bytes", max_gbnf_bytes);
    text_.append(name).append(" ::= ").append(body).append("\n");
}

std::string GbnfWriter::shared(std::string_view requested, const std::string& body) {
    const auto [entry, is_new] = shared_.try_emplace(body);
    if (is_new) define(entry->second = new_name(requested), body);
    return entry->second;
}

std::string GbnfWriter::json(std::string_view name) {
    const auto rule = std::ranges::find(json_rules, name, &JsonRule::name);
    ENSURE(rule != std::end(json_rules), "{}", name);
    if (!names_.insert(std::string(name)).second) return std::string(name);
    define(name, rule->body);
    for (const std::string_view need : rule->needs)
        if (!need.empty()) json(need);
    return std::string(name);
}

} // namespace tq::grammar
