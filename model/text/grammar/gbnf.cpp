// The parser of GBNF, llama.cpp's notation for grammars, by recursive descent: rule, choice, sequence, item, repetition. It
// returns a Syntax, a list of expressions that refer to each other by index, in which parts precede the expressions that have
// them. count_nodes() in grammar.cpp relies on that order.
// The text comes from requests, so everything in it has a limit: bytes, rules, nested groups (the parser recurses there),
// repetitions of one another, and the numbers in them. Errors name line and column, as an author needs them.
// A rule may be used before it is defined: its body is `unlimited` until then, and a body that is still `unlimited` at the end is
// an error. A special token, such as <think>, is a text of bytes that no UTF-8 has: 0xFF, its name, 0xFE. TokenTrie gives the
// token the same bytes, so the automata know nothing of tokens, and no text that a model spells out can pass for one.
#include "model/text/grammar/gbnf.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/char_ranges.h"
#include "model/text/grammar/check.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <optional>
#include <unordered_map>

namespace tq::grammar {
namespace {

constexpr uint32_t max_groups = 100, max_rules = 65536, max_repeat = 100'000'000;

bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
  public:
    explicit GbnfParser(std::string_view text) : text_(text) {}

    Syntax parse() {
        skip_space(true);
        while (!at_end()) parse_rule();
        for (const Rule& rule : syntax_.rules)
            if (rule.body == unlimited)
                refuse(rule.position, fmt::format("the rule '{}' is used but never defined", printable(rule.name)));
        const auto root = ids_.find("root");
        if (root == ids_.end()) fail("the grammar has no rule named root, where an answer begins: add root ::= ...");
        syntax_.root = root->second;
        return std::move(syntax_);
    }

  private:
    [[noreturn]] void refuse(size_t position, std::string_view what) const {
        fail("the grammar, {}: {}", text_position(text_, position), what);
    }
    [[noreturn]] void refuse(std::string_view what) const { refuse(pos_, what); }

    bool at_end() const { return pos_ == text_.size(); }
    char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
    bool take(std::string_view word) {
        if (!text_.substr(pos_).starts_with(word)) return false;
        pos_ += word.size();
        return true;
    }

    void skip_space(bool lines) {
        for (; !at_end(); ++pos_) {
            if (peek() == '#') pos_ = std::min(text_.find('\n', pos_), text_.size());
            if (at_end() || (peek() != ' ' && peek() != '\t' && peek() != '\r' && !(lines && peek() == '\n'))) return;
        }
    }

    uint32_t add(Expr expr) {
        look_at_interrupt();
        syntax_.exprs.push_back(std::move(expr));
        return uint32_t(syntax_.exprs.size() - 1);
    }

    uint32_t rule_id(std::string_view name, size_t position) {
        const auto [entry, is_new] = ids_.try_emplace(std::string(name), uint32_t(syntax_.rules.size()));
        if (is_new) syntax_.rules.push_back({std::string(name), unlimited, position});
        if (syntax_.rules.size() > max_rules) refuse(position, fmt::format("the grammar has more than {} rules", max_rules));
        return entry->second;
    }

    std::string_view parse_name(std::string_view what) {
        const size_t begin = pos_;
        while (is_name_char(peek())) ++pos_;
        if (pos_ == begin) refuse(fmt::format("expected {}", what));
        return text_.substr(begin, pos_ - begin);
    }

    // A rule ends at a line end that is in no group. A body may go on in the next line behind ::= and behind |, as llama.cpp
    // allows it.
    void parse_rule() {
        const size_t position = pos_;
        const uint32_t rule = rule_id(parse_name("the name of a rule, of letters, digits, '-' and '_'"), position);
        skip_space(false);
        if (!take("::=")) refuse("expected ::= after the name of a rule");
        if (syntax_.rules[rule].body != unlimited)
            refuse(position, fmt::format("the rule '{}' is defined twice", printable(syntax_.rules[rule].name)));
        skip_space(true);
        const uint32_t body = parse_choice(0);
        syntax_.rules[rule] = {syntax_.rules[rule].name, body, position};
        if (!at_end() && peek() != '\n') refuse("expected the end of the line, '|', or something to match");
        skip_space(true);
    }

    uint32_t parse_choice(uint32_t depth) {
        Expr choice{.kind = Expr::Kind::choice};
        choice.of.push_back(parse_sequence(depth));
        while (take("|")) {
            skip_space(true);
            choice.of.push_back(parse_sequence(depth));
        }
        return choice.of.size() == 1 ? choice.of[0] : add(std::move(choice));
    }

    // An empty sequence is the empty text: "x |" means x or nothing.
    uint32_t parse_sequence(uint32_t depth) {
        Expr sequence{.kind = Expr::Kind::sequence};
        while (const auto item = parse_item(depth)) {
            skip_space(depth > 0);
            sequence.of.push_back(parse_repeats(*item, depth));
        }
        if (sequence.of.empty()) return add({.kind = Expr::Kind::text});
        return sequence.of.size() == 1 ? sequence.of[0] : add(std::move(sequence));
    }

    // Returns nullopt at the end of a sequence, which is not an error here: the caller knows what may follow. A dot is any
    // character, line ends too, but no surrogate.
    std::optional<uint32_t> parse_item(uint32_t depth) {
        const char c = peek();
        if (c == '"') return parse_text();
        if (c == '[') return parse_class();
        if (c == '.') {
            ++pos_;
            return add({.kind = Expr::Kind::chars, .chars = {{0, 0xD7FF}, {0xE000, last_code_point}}});
        }
        if (c == '(') return parse_group(depth);
        if (c == '<') return parse_token();
        if (c == '!' && peek(1) == '<') refuse("tokens cannot be excluded with !<...>: only <name> is supported");
        if (!is_name_char(c)) return std::nullopt;
        const size_t position = pos_;
        return add({.kind = Expr::Kind::rule, .rule = rule_id(parse_name("a rule"), position)});
    }

    uint32_t parse_group(uint32_t depth) {
        if (depth == max_groups) refuse(fmt::format("groups are nested deeper than {} levels", max_groups));
        const size_t position = pos_++;
        skip_space(true);
        const uint32_t inner = parse_choice(depth + 1);
        if (take(")")) return inner;
        if (at_end()) refuse(position, "the parenthesis is never closed");
        refuse("expected ')', '|', or something to match");
    }

    uint32_t parse_token() {
        const size_t end = std::min(text_.find_first_of(">\n", pos_), text_.size());
        if (end == text_.size() || text_[end] != '>') refuse("the token is never closed: expected <name>");
        const std::string literal(text_.substr(pos_, end + 1 - pos_));
        if (literal.starts_with("<[")) refuse("tokens cannot be given by their ids: name the special token, as in <think>");
        pos_ = end + 1;
        if (std::ranges::find(syntax_.tokens, literal) == syntax_.tokens.end()) {
            if (syntax_.tokens.size() == 256) refuse("the grammar names more than 256 special tokens");
            syntax_.tokens.push_back(literal);
        }
        return add({.kind = Expr::Kind::text, .text = special_token_bytes(literal)});
    }

    char32_t parse_hex(size_t digits) {
        char32_t value = 0;
        for (size_t i = 0; i < digits; ++i, ++pos_) {
            const size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(peek());
            if (at_end() || digit == std::string_view::npos) refuse(fmt::format("expected {} hexadecimal digits", digits));
            value = value * 16 + char32_t(digit % 16);
        }
        if (value > last_code_point || (value >= 0xD800 && value <= 0xDFFF)) refuse("this number is not a code point of Unicode");
        return value;
    }

    // Parses one code point of a text or a class; `end` is the character that closes it.
    char32_t parse_char(size_t begin, std::string_view what) {
        if (at_end() || peek() == '\n') refuse(begin, fmt::format("{} is never closed", what));
        if (!take("\\")) {
            const Utf8Step step = step_utf8(text_, pos_); // valid: checked before
            pos_ += step.length;
            return step.code_point;
        }
        const char c = peek();
        if (at_end()) refuse(begin, fmt::format("{} is never closed", what));
        ++pos_;
        switch (c) {
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case 'x': return parse_hex(2);
        case 'u': return parse_hex(4);
        case 'U': return parse_hex(8);
        default: break;
        }
        if (std::string_view("\\\"[]-^/").find(c) != std::string_view::npos) return char32_t(c);
        --pos_;
        refuse("unknown escape: known are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\/ \\xNN \\uNNNN \\UNNNNNNNN");
    }

    uint32_t parse_text() {
        const size_t begin = pos_++;
        Expr expr{.kind = Expr::Kind::text};
        while (peek() != '"') append_utf8(expr.text, parse_char(begin, "the text"));
        ++pos_;
        return add(std::move(expr));
    }

    // "-" is itself at the end of a class, and a range between two characters. A class without any character would make a rule
    // that never matches, so it is refused, with its place.
    uint32_t parse_class() {
        const size_t begin = pos_++;
        const bool negated = take("^");
        std::vector<CharRange> ranges;
        while (peek() != ']') {
            const size_t position = pos_;
            const char32_t first = parse_char(begin, "the class");
            char32_t last = first;
            if (peek() == '-' && peek(1) != ']') {
                ++pos_;
                last = parse_char(begin, "the class");
            }
            if (last < first) refuse(position, "the range ends before it begins");
            ranges.push_back({first, last});
        }
        ++pos_;
        Expr expr{.kind = Expr::Kind::chars, .chars = normalised(std::move(ranges), negated)};
        if (expr.chars.empty()) refuse(begin, "no character is in this class");
        return add(std::move(expr));
    }

    // In order, merged and without surrogates.
    static std::vector<CharRange> normalised(std::vector<CharRange> ranges, bool negated) {
        if (!negated) ranges = complement(std::move(ranges));
        ranges.push_back({0xD800, 0xDFFF});
        return complement(std::move(ranges));
    }

    uint32_t parse_number() {
        if (peek() < '0' || peek() > '9') refuse("expected a number, as in {2}, {2,} or {2,5}");
        uint64_t value = 0;
        for (; peek() >= '0' && peek() <= '9'; ++pos_) {
            value = value * 10 + uint64_t(peek() - '0');
            if (value > max_repeat) refuse(fmt::format("a repetition has more than {} times", max_repeat));
        }
        skip_space(false);
        return uint32_t(value);
    }

    // Repetitions may follow each other, as in "x"{2}*. Each is one Expr with its numbers; copies are made later, when the
    // automata are built, and counted before (count_nodes).
    uint32_t parse_repeats(uint32_t item, uint32_t depth) {
        for (uint32_t times = 0;; ++times) {
            uint32_t min = 0, max = unlimited;
            const size_t position = pos_;
            if (take("+"))
                min = 1;
            else if (take("?"))
                max = 1;
            else if (take("{")) {
                skip_space(false);
                min = peek() == ',' ? 0 : parse_number();
                max = min;
                if (take(",")) {
                    skip_space(false);
                    max = peek() == '}' ? unlimited : parse_number();
                }
                if (!take("}")) refuse("expected '}'");
                if (max < min) refuse(position, "the repetition has a maximum below its minimum");
            } else if (!take("*"))
                return item;
            if (times == 8) refuse(position, "more than 8 repetitions of one another: use parentheses");
            skip_space(depth > 0);
            item = add({.kind = Expr::Kind::repeat, .min = min, .max = max, .of = {item}});
        }
    }

    std::string_view text_;
    size_t pos_ = 0;
    Syntax syntax_;
    std::unordered_map<std::string, uint32_t> ids_;
};

} // namespace

std::string special_token_bytes(std::string_view literal) { return std::string("\xFF").append(literal).append("\xFE"); }

std::string text_position(std::string_view text, size_t position) {
    const std::string_view before = text.substr(0, position);
    const size_t line = size_t(std::ranges::count(before, '\n')) + 1;
    return fmt::format("line {}, column {}", line, position - (before.rfind('\n') + 1) + 1);
}

Syntax parse_gbnf(std::string_view text) {
    if (text.size() > max_gbnf_bytes) fail("the grammar has {} bytes: at most {} are supported", text.size(), max_gbnf_bytes);
    if (const auto bad = find_invalid_utf8(text)) fail("the grammar, {}: this is not valid UTF-8", text_position(text, *bad));
    Syntax syntax = GbnfParser(text).parse();
    check_syntax(syntax, text);
    return syntax;
}

} // namespace tq::grammar
