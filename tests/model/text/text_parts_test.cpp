// The parts of the tokenizer, each against a slow reference implementation: UTF-8, classes, NFC, words, BPE, special tokens.
#include "model/text/bpe.h"
#include "model/text/pre_tokenizer.h"
#include "model/text/special_tokens.h"
#include "model/text/unicode.h"
#include "tests/support/random_text.h"
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <map>
#include <utf8proc.h>

using namespace tq;
using namespace tq::test;

namespace {

using Ids = std::vector<uint32_t>;

// The regex of pre_tokenizer.h, literally: alternatives in order, repetition from the longest count down to the shortest.
struct SlowSplitter {
    std::u32string text;
    bool (*of_word)(char32_t) = letter;
    bool (*of_symbols)(char32_t) = symbol;

    bool in(size_t i, bool (*test)(char32_t)) const { return i < text.size() && test(text[i]); }
    static bool letter(char32_t c) { return *utf8proc_category_string(int32_t(c)) == 'L'; }
    static bool number(char32_t c) { return *utf8proc_category_string(int32_t(c)) == 'N'; }
    static bool newline(char32_t c) { return c == '\r' || c == '\n'; }
    static bool space(char32_t c) {
        return std::u32string(
                   U"\t\n\v\f\r \x85\xA0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200A\u2028\u2029"
                   U"\u202F\u205F\u3000")
                   .find(c) != std::u32string::npos;
    }
    static bool lead(char32_t c) { return !newline(c) && !letter(c) && !number(c); }
    static bool symbol(char32_t c) { return !space(c) && !letter(c) && !number(c); }
    static bool mark(char32_t c) { return *utf8proc_category_string(int32_t(c)) == 'M'; }
    static bool letter_or_mark(char32_t c) { return letter(c) || mark(c); }
    static bool symbol_but_mark(char32_t c) { return symbol(c) && !mark(c); }
    size_t run(size_t i, bool (*test)(char32_t)) const {
        size_t end = i;
        while (in(end, test)) ++end;
        return end;
    }

    size_t contraction(size_t i) const {
        for (const std::u32string tail : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
            bool same = text[i] == '\'' && i + 1 + tail.size() <= text.size();
            for (size_t k = 0; same && k < tail.size(); ++k) {
                const char32_t c = text[i + 1 + k];
                same = c == tail[k] || c + 32 == tail[k] || (c == 0x17F && tail[k] == 's');
            }
            if (same) return i + 1 + tail.size();
        }
        return i;
    }
    size_t word(size_t i) const {
        for (const bool with_lead : {true, false}) {
            if (with_lead && !in(i, lead)) continue;
            if (const size_t begin = i + with_lead; run(begin, of_word) > begin) return run(begin, of_word);
        }
        return i;
    }
    size_t symbols(size_t i) const {
        for (const bool with_space : {true, false}) {
            if (with_space && text[i] != ' ') continue;
            if (const size_t begin = i + with_space; run(begin, of_symbols) > begin) return run(run(begin, of_symbols), newline);
        }
        return i;
    }
    size_t lines(size_t i) const {
        for (size_t end = run(i, space);; --end) {
            if (run(end, newline) > end) return run(end, newline);
            if (end == i) return i;
        }
    }
    size_t spaces(size_t i) const {
        for (size_t end = run(i, space); end > i; --end)
            if (end == text.size() || space(text[end])) return end;
        return run(i, space);
    }

    std::vector<std::string> split() const {
        std::vector<std::string> words;
        for (size_t i = 0; i < text.size();) {
            size_t end = contraction(i);
            if (end == i) end = word(i);
            if (end == i) end = in(i, number) ? i + 1 : i;
            if (end == i) end = symbols(i);
            if (end == i) end = lines(i);
            if (end == i) end = spaces(i);
            REQUIRE(end > i);
            words.push_back(utf8(text.substr(i, end - i)));
            i = end;
        }
        return words;
    }
};

// The words of SmolLM: each number alone, then the regex on every piece between them.
std::vector<std::string> slow_smollm(const std::u32string& text) {
    const auto space = [](char32_t c) { return SlowSplitter::space(c); };
    std::vector<std::string> words;
    size_t i = 0, end = 0; // of the piece
    const auto run = [&](size_t from, auto test) {
        size_t n = 0;
        while (from + n < end && test(text[from + n])) n++;
        return n;
    };
    const auto symbol = [&](char32_t c) { return !space(c) && !SlowSplitter::letter(c) && !SlowSplitter::number(c); };
    const auto length = [&]() -> size_t {
        for (const std::u32string_view each : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"})
            if (std::u32string_view(text).substr(i, end - i).starts_with(each)) return each.size();
        const size_t blank = text[i] == U' ' ? 1 : 0;
        if (const size_t n = run(i + blank, SlowSplitter::letter)) return blank + n;
        if (const size_t n = run(i + blank, symbol)) return blank + n;
        const size_t all = run(i, space);
        for (size_t n = all; n > 0; n--)
            if (i + n == end || space(text[i + n])) return n;
        return all;
    };
    while (i < text.size()) {
        end = i;
        while (end < text.size() && !SlowSplitter::number(text[end])) end++;
        while (i < end) {
            const size_t n = length();
            REQUIRE(n > 0);
            words.push_back(utf8(text.substr(i, n)));
            i += n;
        }
        if (i < text.size()) words.push_back(utf8(text.substr(i++, 1)));
    }
    return words;
}

std::vector<std::string> split(std::string_view text, WordSplitter splitter = WordSplitter::qwen2) {
    std::vector<std::string> words;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = pre_token_end(splitter, text, begin);
        REQUIRE(end > begin);
        words.emplace_back(text.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

// Merges the pair of lowest rank, the leftmost of equals, until there is none.
Ids slow_bpe(Ids ids, const std::vector<BpeMerge>& merges) {
    for (;;) {
        size_t best_rank = merges.size(), best_place = 0;
        for (size_t i = 0; i + 1 < ids.size(); ++i)
            for (size_t rank = 0; rank < best_rank; ++rank)
                if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) best_rank = rank, best_place = i;
        if (best_rank == merges.size()) return ids;
        ids[best_place] = merges[best_rank].merged;
        ids.erase(ids.begin() + long(best_place) + 1);
    }
}

} // namespace

TEST_CASE("UTF-8: strict, with the place of the fault") {
    for (const std::u32string good : {U"\x7F\x80\u07FF\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF"})
        CHECK(!find_invalid_utf8(utf8(good)));
    for (const char* bad :
         {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
          "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE4\xB8", "\xF0\x9F\xA6", "\xC3(", "\xE4\xB8("}) {
        CHECK(find_invalid_utf8(bad) == 0u);
        CHECK(find_invalid_utf8(std::string("a\u00E9") + bad) == 3u);
    }
}

TEST_CASE("words: by hand") {
    using Words = std::vector<std::string>;
    CHECK(split("Hello world") == Words{"Hello", " world"});
    CHECK(split("  Hello") == Words{" ", " Hello"});
    CHECK(split("a  ") == Words{"a", "  "});
    CHECK(split("a \n \n  b") == Words{"a", " \n \n", " ", " b"});
    CHECK(split("I'Ll we'VE 'sx x'y") == Words{"I", "'Ll", " we", "'VE", " '", "sx", " x", "'y"});
    CHECK(split("1234") == Words{"1", "2", "3", "4"});
    CHECK(split(" 1") == Words{" ", "1"});
    CHECK(split("!!\r\n\nx") == Words{"!!\r\n\n", "x"});
    CHECK(split("\tx\n\ty") == Words{"\tx", "\n", "\ty"});
    CHECK(split("a\u0301b") == Words{"a", "\u0301b"});
    CHECK(split("'\u017Fa 'r 'v 'l") == Words{"'\u017F", "a", " '", "r", " '", "v", " '", "l"});
    CHECK(split("'") == Words{"'"});
    CHECK(split("\u3000\u4E00") == Words{"\u3000\u4E00"});
}

TEST_CASE("words of Qwen3.5: marks are letters") {
    using Words = std::vector<std::string>;
    const auto words = [](std::string_view text) { return split(text, WordSplitter::qwen35); };
    CHECK(words("a\u0301b don't") == Words{"a\u0301b", " don", "'t"});
    CHECK(words("\u0E2A\u0E27\u0E31 \u0E2A") == Words{"\u0E2A\u0E27\u0E31", " \u0E2A"});
    CHECK(words("!\u0301!") == Words{"!\u0301", "!"}); // the first character of a word may be a symbol
    CHECK(words("\u0301\u0301 1\u0301") == Words{"\u0301\u0301", " ", "1", "\u0301"});
    CHECK(split("!\u0301!") == Words{"!\u0301!"});
}

TEST_CASE("words of SmolLM: by hand") {
    using Words = std::vector<std::string>;
    const auto smollm = [](std::string_view text) { return split(text, WordSplitter::smollm); };
    CHECK(smollm("Hello world") == Words{"Hello", " world"});
    CHECK(smollm("  Hello") == Words{" ", " Hello"});
    CHECK(smollm("a  ") == Words{"a", "  "});
    CHECK(smollm("a \n \n  b") == Words{"a", " \n \n ", " b"});
    CHECK(smollm("I'Ll we'VE we've 'sx it's") == Words{"I", "'", "Ll", " we", "'", "VE", " we", "'ve", " '", "sx", " it", "'s"});
    CHECK(smollm("a  12 b") == Words{"a", "  ", "1", "2", " b"});
    CHECK(smollm("!!\r\n\nx") == Words{"!!", "\r\n", "\n", "x"});
    CHECK(smollm("\tx\n\ty") == Words{"\t", "x", "\n", "\t", "y"});
    CHECK(smollm("x\n 7\u00B2") == Words{"x", "\n ", "7", "\u00B2"});
    CHECK(smollm("\u3000\u4E00") == Words{"\u3000", "\u4E00"});
}

TEST_CASE("words: the same as the regex by the letter") {
    std::mt19937 random(2);
    for (int i = 0; i < 100000; ++i) {
        const std::u32string text = random_text(random, 24);
        const std::string bytes = utf8(text);
        const auto words = split(bytes), wanted = SlowSplitter{text}.split();
        if (words != wanted) {
            CAPTURE(bytes);
            REQUIRE(words == wanted);
        }
        const auto qwen35 = split(bytes, WordSplitter::qwen35),
                   wanted_qwen35 = SlowSplitter{text, SlowSplitter::letter_or_mark, SlowSplitter::symbol_but_mark}.split();
        if (qwen35 != wanted_qwen35) {
            CAPTURE(bytes);
            REQUIRE(qwen35 == wanted_qwen35);
        }
        const auto smollm = split(bytes, WordSplitter::smollm), wanted_smollm = slow_smollm(text);
        if (smollm != wanted_smollm) {
            CAPTURE(bytes);
            REQUIRE(smollm == wanted_smollm);
        }
    }
}

TEST_CASE("character classes") {
    size_t spaces = 0;
    for (char32_t c = 0; c < 0x110000; ++c) spaces += char_class(c) == CharClass::space || char_class(c) == CharClass::newline;
    CHECK(spaces == 25); // White_Space
    CHECK(char_class('\r') == CharClass::newline);
    CHECK(char_class('A') == CharClass::letter);
    CHECK(char_class(0x4E00) == CharClass::letter);
    CHECK(char_class(0x2B0) == CharClass::letter);  // Lm
    CHECK(char_class(0xBD) == CharClass::number);   // No
    CHECK(char_class(0x2167) == CharClass::number); // Nl
    CHECK(char_class(0x301) == CharClass::mark);    // Mn
    CHECK(char_class(0x903) == CharClass::mark);    // Mc
    CHECK(char_class(0x20DD) == CharClass::mark);   // Me
    CHECK(char_class(0x200B) == CharClass::other);  // Cf
    CHECK(char_class(0x1F999) == CharClass::other);
    CHECK(char_class(0x10FFFF) == CharClass::other);
}

TEST_CASE("NFC: by hand, and the same as utf8proc's own") {
    CHECK(normalize_nfc("") == "");
    CHECK(normalize_nfc("plain") == "plain");
    CHECK(normalize_nfc("e\u0301") == "\u00E9");
    CHECK(normalize_nfc("\u0301") == "\u0301");
    CHECK(normalize_nfc("\u212B\u2126") == "\u00C5\u03A9");  // singletons
    CHECK(normalize_nfc("a\u0301\u0323") == "\u1EA1\u0301"); // marks are put in order first
    CHECK(normalize_nfc("\uAC00\u11A8") == "\uAC01");        // LV + T
    CHECK(normalize_nfc("\u0915\u093C") == "\u0915\u093C");  // composition exclusion
    CHECK(normalize_nfc("\u0958") == "\u0915\u093C");
    CHECK(normalize_nfc("\u09C7\u09BE") == "\u09CB"); // a second half that is a starter
    CHECK(normalize_nfc("\U00011131\U00011127") == "\U0001112E");
    CHECK(normalize_nfc("\uFB01") == "\uFB01"); // compatibility characters are kept

    std::mt19937 random(3);
    std::u32string parts = U"ae\u1100\u1161\u11A8\uAC00\u0915\u093C\u0344\u0F71\u0F72\u0F73\u3042\u3099\u09C7\u09BE\u1E9B";
    for (char32_t c = 0x300; c < 0x370; ++c) parts += c;
    for (int i = 0; i < 50000; ++i) {
        std::u32string text = random_text(random, 4);
        for (size_t n = random() % 8; n > 0; --n) text += parts[random() % parts.size()];
        text += random_text(random, 4);
        std::erase(text, U'\0'); // ends utf8proc's strings
        const std::string bytes = utf8(text);
        utf8proc_uint8_t* wanted = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(bytes.c_str()));
        REQUIRE(wanted);
        const bool same = normalize_nfc(bytes) == reinterpret_cast<char*>(wanted);
        std::free(wanted);
        if (!same) FAIL("NFC differs for " << bytes);
    }
}

TEST_CASE("BPE: the same as merging step by step") {
    std::mt19937 random(4);
    for (int round = 0; round < 300; ++round) {
        const char32_t letters = 2 + random() % 3;
        std::array<uint32_t, 256> byte_ids;
        for (uint32_t i = 0; i < 256; ++i) byte_ids[i] = i;
        std::vector<BpeMerge> merges;
        uint32_t size = 256;
        const auto any_id = [&] {
            return random() % 3 == 0 && size > 256 ? 256 + random() % (size - 256) : 'a' + random() % letters;
        };
        for (size_t n = random() % 20; n > 0; --n) {
            const BpeMerge merge{uint32_t(any_id()), uint32_t(any_id()), size};
            const auto same = [&](const BpeMerge& m) { return m.left == merge.left && m.right == merge.right; };
            if (std::none_of(merges.begin(), merges.end(), same)) merges.push_back(merge), ++size;
        }
        std::shuffle(merges.begin(), merges.end(), random); // a merge may need a later one
        const Bpe bpe(byte_ids, merges, size);
        Bpe::Scratch scratch;
        for (int i = 0; i < 30; ++i) {
            std::string word;
            for (size_t n = random() % 24; n > 0; --n) word += char('a' + random() % letters);
            Ids ids;
            bpe.encode(word, ids, scratch);
            REQUIRE(ids == slow_bpe(Ids(word.begin(), word.end()), merges));
        }
    }
}

using Found = std::vector<std::vector<size_t>>; // begin, length and id of each

Found found(const SpecialTokens& specials, std::string_view text) {
    Found out;
    for (const auto& [begin, length, id] : specials.find(text)) out.push_back({begin, length, id});
    return out;
}

TEST_CASE("special tokens: leftmost, then longest") {
    const SpecialTokens specials({{"<a>", 1}, {"<a>b", 2}, {"<", 3}, {"x<", 4}, {"\xC3\xA9", 5}});
    CHECK(found(specials, "<a>b") == Found{{0, 4, 2}});
    CHECK(found(specials, "<a>c") == Found{{0, 3, 1}});
    CHECK(found(specials, "<a") == Found{{0, 1, 3}});
    CHECK(found(specials, "yx<a>b") == Found{{1, 2, 4}});
    CHECK(found(specials, "y<a>b<<a>") == Found{{1, 4, 2}, {5, 1, 3}, {6, 3, 1}});
    CHECK(found(specials, "x\u00E9") == Found{{1, 2, 5}});
    CHECK(found(specials, "x").empty());
    CHECK(found(specials, "").empty());
    CHECK(specials.id("<a>") == 1u);
    CHECK(!specials.id("<a"));
    CHECK(SpecialTokens({}).find("text").empty());
}

TEST_CASE("special tokens: those that a search at each position finds, of random ones") {
    std::mt19937 random(8);
    const auto word = [&](size_t max) {
        std::string text;
        for (size_t n = 1 + random() % max; n > 0; --n) text += char('a' + random() % 2);
        return text;
    };
    for (int round = 0; round < 300; ++round) {
        std::map<std::string, uint32_t> literals;
        while (literals.size() < 1 + size_t(round) % 9) literals.emplace(word(5), literals.size());
        const SpecialTokens specials({literals.begin(), literals.end()});
        const std::string text = word(60);
        Found expected;
        for (size_t begin = 0; begin < text.size();) {
            size_t length = 5;
            while (length > 0 && !literals.contains(text.substr(begin, length))) --length;
            if (length > 0) length = std::min(length, text.size() - begin);
            if (length > 0) expected.push_back({begin, length, literals.at(text.substr(begin, length))});
            begin += std::max<size_t>(length, 1);
        }
        REQUIRE(found(specials, text) == expected);
    }
}
