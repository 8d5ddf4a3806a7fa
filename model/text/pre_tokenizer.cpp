// The alternatives of the regexes, tried in their order; the first that matches at a position wins.
#include "model/text/pre_tokenizer.h"
#include "base/ensure.h"
#include "model/text/unicode.h"

namespace tq {
namespace {

// A position in the text and the character there. At the end of the text the length is 0 and no class matches. No regex knows
// marks as a class of their own: they are among the letters or among the others.
struct Cursor {
    std::string_view text;
    size_t pos;
    CharClass marks; // what marks count as
    char32_t code_point = 0;
    uint8_t length = 0;
    CharClass kind = CharClass::other;

    Cursor(std::string_view whole, size_t start, CharClass mark_kind) : text(whole), pos(start), marks(mark_kind) {
        if (pos >= text.size()) return;
        const Utf8Step step = step_utf8(text, pos);
        code_point = step.code_point;
        length = step.length;
        kind = char_class(code_point);
        if (kind == CharClass::mark) kind = marks;
    }
    Cursor next() const { return {text, pos + length, marks}; }
    bool at_end() const { return length == 0; }
    bool is(CharClass wanted) const { return length != 0 && kind == wanted; }
};

Cursor skip(Cursor c, CharClass kind) {
    while (c.is(kind)) c = c.next();
    return c;
}

char32_t fold(char32_t c) {
    if (c == 0x17F) return 's'; // long s: equal to s when case is ignored
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d); returns start.pos when there is none.
size_t match_contraction(const Cursor& start) {
    if (start.code_point != '\'') return start.pos;
    const Cursor one = start.next();
    const char32_t a = fold(one.code_point);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return one.next().pos;
    if (a != 'r' && a != 'v' && a != 'l') return start.pos;
    const Cursor two = one.next();
    return fold(two.code_point) == (a == 'l' ? U'l' : U'e') ? two.next().pos : start.pos;
}

// \s*[\r
// ]+|\s+(?!\S)|\s+ : up to the last line end of the run; else the whole run if the text ends with it; else all but its last
// character, which the next word takes; else the run's only character.
size_t match_space(const Cursor& start) {
    size_t last_newline_end = start.pos, last_begin = start.pos;
    Cursor c = start;
    for (; c.is(CharClass::space) || c.is(CharClass::newline); c = c.next()) {
        last_begin = c.pos;
        if (c.kind == CharClass::newline) last_newline_end = c.pos + c.length;
    }
    if (last_newline_end > start.pos) return last_newline_end;
    return c.at_end() || last_begin == start.pos ? c.pos : last_begin;
}

// max_digits: of one word. An optional first character that is a mark itself begins the same word as a letter does.
// The regex of Qwen2 and Llama 3, one `if` for each alternative, in its order. Each class of characters is a CharClass, so a
// position costs one look-up of its character. llama.cpp does the same for the same reason: std::regex knows no Unicode classes,
// and a general engine takes several times longer.
size_t qwen2_end(const Cursor& start, int max_digits) {
    if (const size_t end = match_contraction(start); end != start.pos) return end;
    // [^\r\n\p{L}\p{N}]?\p{L}+
    if (start.is(CharClass::letter)) return skip(start, CharClass::letter).pos;
    if (start.is(CharClass::space) || start.is(CharClass::other)) {
        if (const Cursor next = start.next(); next.is(CharClass::letter)) return skip(next, CharClass::letter).pos;
    }
    if (start.is(CharClass::number)) {
        Cursor c = start;
        for (int i = 0; i < max_digits && c.is(CharClass::number); ++i) c = c.next();
        return c.pos;
    }
    // ' '?[^\s\p{L}\p{N}]+[\r\n]*
    const Cursor symbols = start.code_point == ' ' ? start.next() : start;
    if (symbols.is(CharClass::other)) return skip(skip(symbols, CharClass::other), CharClass::newline).pos;
    return match_space(start);
}

bool is_space(const Cursor& c) { return c.is(CharClass::space) || c.is(CharClass::newline); }

// \s+(?!\S)|\s+ before the end of the text or a number, which is no part of the text that the regex sees: the whole run; else
// all but its last character, or the only one.
size_t match_space_before_numbers(const Cursor& start) {
    size_t last_begin = start.pos;
    Cursor c = start;
    for (; is_space(c); c = c.next()) last_begin = c.pos;
    return c.at_end() || c.is(CharClass::number) || last_begin == start.pos ? c.pos : last_begin;
}

size_t smollm_end(std::string_view text, size_t pos) {
    const Cursor start(text, pos, CharClass::other);
    if (start.is(CharClass::number)) return start.next().pos;
    // Contractions in lower case only.
    for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
        if (text.substr(pos).starts_with(contraction)) return pos + contraction.size();
    const Cursor word = start.code_point == ' ' ? start.next() : start;
    for (const CharClass kind : {CharClass::letter, CharClass::other})
        if (word.is(kind)) return skip(word, kind).pos;
    return match_space_before_numbers(start);
}

} // namespace

size_t pre_token_end(WordSplitter splitter, std::string_view text, size_t pos) {
    ENSURE(pos < text.size(), "a word at byte {} of {}", pos, text.size());
    if (splitter == WordSplitter::smollm) return smollm_end(text, pos);
    const CharClass marks = splitter == WordSplitter::qwen35 ? CharClass::letter : CharClass::other;
    return qwen2_end(Cursor(text, pos, marks), splitter == WordSplitter::llama3 ? 3 : 1);
}

} // namespace tq
