// The parts of Unicode that the tokenizer needs: strict UTF-8, the classes of the pre-tokenizer's regex, NFC. Tables: utf8proc.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tq {

// One step through UTF-8 text. An ill-formed sequence has the length of its maximal subpart (Unicode 15, section 3.9, D93b), at
// least 1: one U+FFFD replaces it. `incomplete`: the text ends within a character that more bytes could still complete.
struct Utf8Step {
    enum class Kind : uint8_t { character, ill_formed, incomplete };
    Kind kind;
    uint8_t length; // bytes
    char32_t code_point;
};

Utf8Step step_utf8(std::string_view text, size_t pos); // pos < text.size()

// Returns the offset of the first byte that is not part of a well-formed character (no overlong forms, no surrogates).
std::optional<size_t> find_invalid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code_point);

// letter: \p{L}; mark: \p{M}; number: \p{N}; newline: CR and LF; space: the rest of White_Space; other: everything else.
enum class CharClass : uint8_t { letter, mark, number, newline, space, other };

CharClass char_class(char32_t code_point);

// Returns the general category as two letters, "Lu"; "Cn" if there is no such character.
std::string_view general_category(char32_t code_point);

// Returns the NFC (Unicode Standard Annex 15) of valid UTF-8, in time O(n log n) for any text.
std::string normalize_nfc(std::string_view text);

} // namespace tq
