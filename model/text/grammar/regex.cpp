// The regular expressions of a schema's `pattern`, as in ECMA-262, except parts that no regular grammar can express
// (backreferences), lookaround that is not at the beginning, and anchors within groups. The parser recurses by groups; at most 24
// are nested. A pattern matches anywhere in a text unless it is anchored, so ends without an anchor get any number of characters.
// A lookahead behind ^ is an expression for the whole text, too: (?=.*x) is .*x with anything after it. The text is within a
// JSON string. Each class is therefore written as JSON writes its characters (json_chars()): most as they are, a quote, a
// backslash and control characters as the short escapes. \u escapes are not offered, so control characters without a short one
// cannot be written, and a class that has only these is refused.
#include "model/text/grammar/regex.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/char_ranges.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <unordered_map>

namespace tq::grammar {
namespace {

constexpr uint32_t max_regex_depth = 24, max_repeat = 32768;

using Ranges = std::vector<CharRange>;

const Ranges digits{{'0', '9'}}, word{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
    spaces{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x2028, 0x2029}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

// The characters whose general category begins with `name`.
Ranges characters_of(std::string_view name) {
    static const std::vector<std::pair<std::string, CharRange>> categories = [] {
        std::vector<std::pair<std::string, CharRange>> runs;
        for (char32_t c = 0; c <= last_code_point; ++c) {
            const std::string_view category = general_category(c);
            if (runs.empty() || runs.back().first != category) runs.push_back({std::string(category), {c, c}});
            runs.back().second.last = c;
        }
        return runs;
    }();
    Ranges ranges;
    for (const auto& [category, range] : categories)
        if (!name.empty() && category.starts_with(name)) ranges.push_back(range);
    return merged(std::move(ranges));
}

class RegexParser {
  public:
    RegexParser(std::string_view pattern, GbnfWriter& writer) : text_(pattern), writer_(writer) {}

    std::vector<RegexPart> parse() {
        if (text_.size() > max_pattern_bytes)
            fail("a pattern has {} bytes: at most {} are supported", text_.size(), max_pattern_bytes);
        std::vector<RegexPart> looks;
        while (const size_t length = lookahead_length()) {
            pos_ += length;
            const bool negated = text_[pos_ - 1] == '!';
            looks.push_back({parse_choice(1, Anchors::lookahead), negated});
            if (!take(")")) refuse("the group is never closed");
        }
        const size_t begin = pos_;
        std::vector<RegexPart> parts;
        parts.push_back({parse_choice(0, looks.empty() ? Anchors::whole : Anchors::behind_lookahead), false});
        if (pos_ != text_.size()) refuse("this ')' has no '('");
        if (!looks.empty() && has_outer_choice_)
            pos_ = begin, refuse("a lookahead in one of several alternatives is not supported");
        std::ranges::move(looks, std::back_inserter(parts));
        return parts;
    }

  private:
    // Where ^ and $ may stand: at the ends of the alternatives of the whole pattern; likewise in a lookahead, which begins at the
    // beginning all the same; behind one the beginning has been read; nowhere in other groups.
    enum class Anchors { whole, lookahead, behind_lookahead, none };

    // The length of "(?=" or "(?!" at the front, and of the ^ before it; 0 if there is none.
    size_t lookahead_length() const {
        const size_t anchor = pos_ == 0 ? 1 : 0;
        if (anchor == 1 && peek() != '^') return 0;
        const std::string_view next = text_.substr(std::min(pos_ + anchor, text_.size()));
        return next.starts_with("(?=") || next.starts_with("(?!") ? anchor + 3 : 0;
    }

    [[noreturn]] void refuse(std::string_view what) const {
        fail("the pattern '{}', at offset {}: {}", printable(text_, 200), pos_, what);
    }
    char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
    bool at_end() const { return pos_ >= text_.size(); }
    bool take(std::string_view word) {
        if (!text_.substr(pos_).starts_with(word)) return false;
        pos_ += word.size();
        return true;
    }

    // Long classes, such as that of all letters, are rules, and made once.
    Regex one_of(Ranges ranges) {
        constexpr size_t long_class = 200, many_ranges = 16;
        const std::string key(reinterpret_cast<const char*>(ranges.data()), ranges.size() * sizeof(CharRange));
        const bool is_long = ranges.size() > many_ranges;
        if (const auto known = classes_.find(key); is_long && known != classes_.end()) return known->second;
        std::string text = chars(ranges);
        if (text.size() > long_class) text = writer_.shared("class", text);
        Regex one{
            .kind = Regex::Kind::chars, .text = std::move(text), .ranges = std::make_shared<const Ranges>(std::move(ranges))};
        if (is_long) classes_.emplace(key, one);
        return one;
    }
    Regex anything() const {
        Regex any{.kind = Regex::Kind::repeat, .min = 0, .max = unlimited};
        any.of.push_back({.kind = Regex::Kind::chars,
                          .text = writer_.json("char"),
                          .ranges = std::make_shared<const Ranges>(Ranges{{0, last_code_point}})});
        return any;
    }

    Regex parse_choice(uint32_t depth, Anchors anchors) {
        Regex choice{.kind = Regex::Kind::choice, .text = {}};
        do choice.of.push_back(parse_sequence(depth, anchors));
        while (take("|"));
        has_outer_choice_ |= depth == 0 && choice.of.size() > 1;
        return choice.of.size() == 1 ? Regex(std::move(choice.of[0])) : choice;
    }

    Regex parse_sequence(uint32_t depth, Anchors anchors) {
        const bool begins = take("^"), outer = anchors != Anchors::none;
        if (begins && !outer) refuse("^ within a group is not supported");
        if (begins && anchors == Anchors::behind_lookahead) refuse("^ behind a lookahead is not supported");
        Regex sequence{.kind = Regex::Kind::sequence, .text = {}};
        if (anchors == Anchors::whole && !begins) sequence.of.push_back(anything());
        bool ends = false;
        while (!at_end() && peek() != '|' && peek() != ')') {
            look_at_interrupt();
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
            if (repeat.min > max_repeat) refuse(fmt::format("a repetition of more than {} times is not supported", max_repeat));
            if (repeat.max > max_repeat) repeat.max = unlimited; // an answer is hardly longer
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
        const bool is_name = text_.substr(pos_).starts_with("?<") && peek(2) != '=' && peek(2) != '!';
        const size_t name_end = is_name ? text_.find('>', pos_) : text_.npos;
        const bool named = name_end != text_.npos;
        if (named) pos_ = name_end + 1;
        if (peek() == '?' && !named && !take("?:"))
            refuse("groups that begin with (? are not supported, except (?:, (?<name>, and (?= and (?! behind ^");
        Regex group = parse_choice(depth, Anchors::none);
        if (!take(")")) refuse("the group is never closed");
        return group;
    }

    // \d, \w, \s, \p{L} and their opposites; nothing for other escapes.
    std::optional<Ranges> parse_set() {
        const char c = peek(1);
        if ((c == 'p' || c == 'P') && peek(2) == '{') return parse_category(c == 'P');
        if (c == '\0' || std::string_view("dDwWsS").find(c) == std::string_view::npos) return std::nullopt;
        pos_ += 2;
        const Ranges& set = c == 'd' || c == 'D' ? digits : c == 'w' || c == 'W' ? word : spaces;
        return c >= 'a' ? set : complement(set);
    }

    // Unicode's general categories, \p{Lu} or \p{L}.
    Ranges parse_category(bool negated) {
        const size_t end = text_.find('}', pos_);
        const std::string_view name = text_.substr(pos_ + 3, std::min(end, text_.size()) - pos_ - 3);
        const Ranges ranges = end == text_.npos || name.size() > 2 ? Ranges() : characters_of(name);
        if (ranges.empty())
            refuse(fmt::format("\\p{{{}}} is not supported, but general categories such as \\p{{L}} and \\p{{Nd}} are",
                               printable(name, 40)));
        pos_ = end + 1;
        return negated ? complement(ranges) : ranges;
    }

    // A backslash has been read, and "u": four digits, two surrogates of them, or digits in braces.
    char32_t parse_unicode() {
        constexpr char32_t high = 0xD800, low = 0xDC00;
        if (take("{")) {
            const size_t end = text_.find('}', pos_);
            if (end == text_.npos || end - pos_ > 6) refuse("expected up to 6 hexadecimal digits and '}'");
            const char32_t value = parse_hex(end - pos_);
            ++pos_;
            if (value > last_code_point) refuse("this number is not a code point of Unicode");
            return checked(value);
        }
        const char32_t first = parse_hex(4);
        if ((first & ~0x3FFu) != high || !take("\\u")) return checked(first);
        const char32_t second = parse_hex(4);
        if ((second & ~0x3FFu) != low) return checked(first);
        return 0x10000 + ((first - high) << 10) + (second - low);
    }

    char32_t checked(char32_t value) const {
        if (value >= 0xD800 && value <= 0xDFFF) refuse("surrogates are not supported: write the character itself");
        return value;
    }

    char32_t parse_hex(size_t length) {
        char32_t value = 0;
        for (size_t i = 0; i < length; ++i, ++pos_) {
            const size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(peek());
            if (at_end() || digit == std::string_view::npos) refuse(fmt::format("expected {} hexadecimal digits", length));
            value = value * 16 + char32_t(digit % 16);
        }
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
        case 'u': return parse_unicode();
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
            look_at_interrupt();
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

    std::string_view text_;
    GbnfWriter& writer_;
    std::unordered_map<std::string, Regex> classes_; // long ones, by the bytes of their ranges
    size_t pos_ = 0;
    bool has_outer_choice_ = false;
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

std::vector<RegexPart> parse_regex(std::string_view pattern, GbnfWriter& writer) { return RegexParser(pattern, writer).parse(); }

} // namespace tq::grammar
