// Random text for tests of the tokenizer.
#pragma once
#include "model/text/unicode.h"
#include <random>
#include <string>

namespace tq::test {

inline std::string utf8(const std::u32string& text) {
    std::string out;
    for (const char32_t c : text) append_utf8(out, c);
    return out;
}

// Text that reaches every branch: mostly characters that the regex treats specially, now and then any character at all.
inline std::u32string random_text(std::mt19937& random, size_t max_length) {
    static const std::u32string alphabet =
        U"   "
        U"\t\n\n\r\x0B\x0C\x1C\x1F\x85\xA0\u1680\u2000\u200A\u200B\u2028\u2029\u202F\u205F\u3000\uFEFF''''"
        U"sStTmMdDrReEvVlL\u017F\u212A"
        U"az09.,!<|>-_"
        U"\u00E9\u0301\u0323\u0660\u00BD\u2167\u4E00\u0903\uAC00\u1112\u1161\u11AB\u3042\u3099\u2019\U0001F999\u200D\uFE0F";
    std::u32string text;
    for (size_t n = random() % (max_length + 1); n > 0; --n) {
        char32_t c = alphabet[random() % alphabet.size()];
        if (random() % 8 == 0) c = random() % 0x110000;
        if (c < 0xD800 || c > 0xDFFF) text += c;
    }
    return text;
}

} // namespace tq::test
