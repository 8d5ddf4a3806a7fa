// The regular expressions of a schema's `pattern`, as in ECMA-262, except parts that no regular grammar can express
// (backreferences, lookaround) and for anchors within groups. The parser recurses by groups; at most 24 are nested. A pattern
// matches anywhere in a text unless it is anchored, so ends without an anchor get any number of characters. The text is within a
// JSON string. Each class is therefore written as JSON writes its characters (json_chars()): most as they are, a quote, a
// backslash and control characters as the short escapes. \u escapes are not offered, so control characters without a short one
// cannot be written, and a class that has only these is refused.
#include "model/text/grammar/regex.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace tq::grammar {
namespace {

constexpr uint32_t max_regex_depth = 24;
constexpr char32_t last_code_point = 0x10FFFF;

using Ranges = std::vector<CharRange>;

// Ranges may overlap and be out of order.
Ranges complement(Ranges ranges) {
    std::ranges::sort(ranges, {}, &CharRange::first);
    Ranges others;
    char32_t next = 0;
    for (const CharRange& r : ranges) {
        if (r.first > next) others.push_back({next, r.first - 1});
        next = std::max<char32_t>(next, r.last + 1);
    }
    if (next <= last_code_point) others.push_back({next, last_code_point});
    return others;
}

const Ranges digits{{'0', '9'}}, word{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
    spaces{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x2028, 0x2029}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

class RegexParser {
  public:
    RegexParser(std::string_view pattern, std::string_view any) : text_(pattern), any_(any) {}

    Regex parse() {
        Regex body = parse_choice(0);
        if (pos_ != text_.size()) refuse("this ')' has no '('");
        return body;
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const {
        fail("the pattern '{}', at offset {}: {}", printable(text_), pos_, what);
    }
    char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
    bool at_end() const { return pos_ >= text_.size(); }
    bool take(std::string_view word) {
        if (!text_.substr(pos_).starts_with(word)) return false;
        pos_ += word.size();
        return true;
    }

    Regex one_of(Ranges ranges) const { return {.kind = Regex::Kind::chars, .text = chars(std::move(ranges))}; }
    Regex anything() const {
        Regex any{.kind = Regex::Kind::repeat, .min = 0, .max = unlimited};
        any.of.push_back({.kind = Regex::Kind::chars, .text = std::string(any_)});
        return any;
    }

    Regex parse_choice(uint32_t depth) {
        Regex choice{.kind = Regex::Kind::choice};
        do choice.of.push_back(parse_sequence(depth));
        while (take("|"));
        return choice.of.size() == 1 ? Regex(std::move(choice.of[0])) : choice;
    }

    // Anchors belong to the ends of the alternatives of the whole pattern.
    Regex parse_sequence(uint32_t depth) {
        const bool begins = take("^"), outer = depth == 0;
        if (begins && !outer) refuse("^ within a group is not supported");
        Regex sequence{.kind = Regex::Kind::sequence};
        if (outer && !begins) sequence.of.push_back(anything());
        bool ends = false;
        while (!at_end() && peek() != '|' && peek() != ')') {
            if (ends) refuse("$ is supported at the end only");
            if (peek() == '^') refuse("^ is supported at the beginning only");
            if (peek() == '$' && !outer) refuse("$ within a group is not supported");
            if (take("$"))
                ends = true;
            else
                sequence.of.push_back(parse_repeat(parse_atom(depth)));
        }
        if (outer && !ends) sequence.of.push_back(anything());
        return sequence;
    }

    // The number at the front, at most 100 million: a grammar with more copies is refused.
    uint32_t parse_count() {
        uint32_t count = 0;
        const size_t begin = pos_;
        for (; peek() >= '0' && peek() <= '9'; ++pos_) count = std::min(count * 10 + uint32_t(peek() - '0'), 100'000'000u);
        if (pos_ == begin) refuse("expected a repetition such as {2}, {2,} or {2,5}");
        return count;
    }

    // A lazy repetition (x*?) accepts the same texts as a greedy one. So the mark is read and forgotten; what a grammar allows
    // has no order of preference.
    Regex parse_repeat(Regex atom) {
        Regex repeat{.kind = Regex::Kind::repeat, .min = 0, .max = unlimited};
        if (take("+")) {
            repeat.min = 1;
        } else if (take("?")) {
            repeat.max = 1;
        } else if (take("{")) {
            repeat.min = repeat.max = parse_count();
            if (take(",")) repeat.max = peek() == '}' ? unlimited : parse_count();
            if (!take("}")) refuse("expected a repetition such as {2}, {2,} or {2,5}");
            if (repeat.max < repeat.min) refuse("the repetition's maximum is less than its minimum");
        } else if (!take("*")) {
            return atom;
        }
        take("?"); // a lazy repetition matches the same texts
        if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse("a repetition of a repetition");
        repeat.of.push_back(std::move(atom));
        return repeat;
    }

    Regex parse_atom(uint32_t depth) {
        if (take("(")) return parse_group(depth + 1);
        if (peek() == '[') return parse_class();
        if (take(".")) return one_of(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
        if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse("there is nothing to repeat");
        if (peek() == '\\') {
            if (const auto set = parse_set()) return one_of(*set);
        }
        const char32_t c = parse_char();
        return one_of({{c, c}});
    }

    // A named group, (?<name>...), is one without a name. (?<= and (?<! begin with the same characters, but look behind, and are
    // refused.
    Regex parse_group(uint32_t depth) {
        if (depth > max_regex_depth) refuse(fmt::format("groups are nested deeper than {} levels", max_regex_depth));
        const size_t name_end = text_.find('>', pos_);
        const bool named = text_.substr(pos_).starts_with("?<") && peek(2) != '=' && peek(2) != '!' && name_end != text_.npos;
        if (named) pos_ = name_end + 1;
        if (peek() == '?' && !named && !take("?:"))
            refuse("groups that begin with (? are not supported, except (?: and (?<name>");
        Regex group = parse_choice(depth);
        if (!take(")")) refuse("the group is never closed");
        return group;
    }

    // \d, \w, \s and their opposites; nothing for other escapes.
    std::optional<Ranges> parse_set() {
        const char c = peek(1);
        if (c == '\0' || std::string_view("dDwWsS").find(c) == std::string_view::npos) return std::nullopt;
        pos_ += 2;
        const Ranges& set = c == 'd' || c == 'D' ? digits : c == 'w' || c == 'W' ? word : spaces;
        return c >= 'a' ? set : complement(set);
    }

    char32_t parse_hex(size_t length) {
        char32_t value = 0;
        for (size_t i = 0; i < length; ++i, ++pos_) {
            const size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(peek());
            if (at_end() || digit == std::string_view::npos) refuse(fmt::format("expected {} hexadecimal digits", length));
            value = value * 16 + char32_t(digit % 16);
        }
        if (value >= 0xD800 && value <= 0xDFFF) refuse("surrogates are not supported: write the character itself");
        return value;
    }

    char32_t parse_char() {
        if (!take("\\")) {
            const Utf8Step step = step_utf8(text_, pos_);
            if (step.kind != Utf8Step::Kind::character) refuse("this is not valid UTF-8");
            pos_ += step.length;
            return step.code_point;
        }
        const char c = peek();
        if (at_end()) refuse("nothing follows the backslash");
        ++pos_;
        switch (c) {
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case 'f': return '\f';
        case 'v': return '\v';
        case 'x': return parse_hex(2);
        case 'u': return parse_hex(4);
        default: break;
        }
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_letter && uint8_t(c) < 0x80) return char32_t(c);
        --pos_;
        refuse(fmt::format("the escape \\{} is not supported", printable(std::string_view(&c, 1))));
    }

    // An empty class, [], allows no character and is refused by chars(); [^] is any character.
    Regex parse_class() {
        ++pos_;
        const bool negated = take("^");
        Ranges ranges;
        while (peek() != ']') {
            if (at_end()) refuse("the class is never closed");
            if (peek() == '\\') {
                if (const auto set = parse_set()) {
                    ranges.insert(ranges.end(), set->begin(), set->end());
                    continue;
                }
            }
            const char32_t first = parse_char();
            char32_t last = first;
            if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
                ++pos_;
                last = parse_char();
            }
            if (last < first) refuse("the range ends before it begins");
            ranges.push_back({first, last});
        }
        ++pos_;
        return one_of(negated ? complement(std::move(ranges)) : std::move(ranges));
    }

    std::string chars(Ranges ranges) const {
        std::string out = json_chars(std::move(ranges));
        if (out.empty()) refuse("no character that JSON can write is in this class");
        return out;
    }

    std::string_view text_, any_;
    size_t pos_ = 0;
};

} // namespace

// The result is GBNF: a class of the characters that stand in JSON as they are, or a backslash and a class of the short escapes,
// or both as alternatives.
std::string json_chars(std::vector<CharRange> ranges, bool negated) {
    if (negated) ranges = complement(std::move(ranges));
    const Ranges plain_only = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0xD800, 0xDFFF}});
    Ranges plain;
    for (const CharRange& r : ranges)
        for (const CharRange& p : plain_only)
            if (std::max(r.first, p.first) <= std::min(r.last, p.last))
                plain.push_back({std::max(r.first, p.first), std::min(r.last, p.last)});
    std::string escapes;
    for (const auto& [c, letter] :
         {std::pair('"', '"'), {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}})
        if (std::ranges::any_of(ranges, [&](const CharRange& r) { return r.first <= char32_t(c) && char32_t(c) <= r.last; }))
            escapes += letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
    const std::string both = escapes.empty() ? "" : "\"\\\\\" [" + escapes + "]";
    if (plain.empty()) return both.empty() ? "" : "(" + both + ")";
    return both.empty() ? gbnf_class(plain) : fmt::format("({} | {})", gbnf_class(plain), both);
}

Regex parse_regex(std::string_view pattern, std::string_view any) { return RegexParser(pattern, any).parse(); }

} // namespace tq::grammar
