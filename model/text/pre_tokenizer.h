// The word splitters in front of the BPE, written by hand from the regexes of tokenizer.json.
#pragma once
#include <cstddef>
#include <string_view>

namespace tq {

enum class WordSplitter {
    // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
    qwen2,
    // The same with marks among the letters: [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
    qwen35,
    // qwen2 with \p{N}{1,3}.
    llama3,
    // Each \p{N} alone; what is between them by 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    smollm,
};

// Returns the end of the word that starts at byte `pos`. `text` is valid UTF-8, pos < text.size() is the start of a character;
// the result is greater than pos. Splitting a whole text this way takes linear time.
size_t pre_token_end(WordSplitter splitter, std::string_view text, size_t pos);

} // namespace tq
