// The word splitter in front of the BPE of Qwen2 and Qwen3, written by hand from the regex of tokenizer.json:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#pragma once
#include <cstddef>
#include <string_view>

namespace tq {

// Returns the end of the word that starts at byte `pos`. `text` is valid UTF-8, pos < text.size() is the start of a character;
// the result is greater than pos. Splitting a whole text this way takes linear time.
size_t pre_token_end(std::string_view text, size_t pos);

} // namespace tq
