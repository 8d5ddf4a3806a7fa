// A model file's tokenizer.ggml.* keys, checked: everything the tokenizer relies on holds once this is read.
#pragma once
#include "model/files/formats/model_file.h"
#include "model/text/bpe.h"
#include "model/text/pre_tokenizer.h"
#include "model/text/tokenizer.h"
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

enum class TokenKind : uint8_t {
    base,    // made by the BPE from the bytes of text
    control, // added; matched in markup only; not shown to users
    tag,     // added; matched in markup only; part of the answer's text, such as <think>
    word,    // added; matched in every text: what a fine-tune has added to the words of its language
    unused,  // a padding row of the embedding
};

struct Vocabulary {
    std::string bytes;                       // of all tokens, one after the other
    std::vector<size_t> begins;              // of each token in `bytes`, and the end
    std::vector<TokenKind> kinds;            // by id
    std::array<uint32_t, 256> byte_ids = {}; // Bpe::none if a byte has no token
    std::vector<BpeMerge> merges;            // by rank; of tokens, and from size() on of partials
    std::vector<std::string> partials;       // bytes of texts that merges join and that are no tokens
    std::string merges_label;                // of their key, in notes
    std::vector<uint32_t> stop_ids;          // from the file's keys of tokens that end an answer; below size()
    InfillTokens infill;

    WordSplitter splitter = WordSplitter::qwen2;
    bool whole_words = false;                   // a word that is a token is not merged from its bytes
    std::optional<uint32_t> bos_id;             // a text begins with it
    std::optional<uint32_t> eos_id, padding_id; // as the file names them; of several the first
    std::vector<std::string> notes;             // on what was ignored, a sentence each
    std::string refusal; // the reason why texts cannot be encoded with another kind of tokenizer; empty for those of this program

    uint32_t size() const { return uint32_t(kinds.size()); }
    std::string_view token(uint32_t id) const { return std::string_view(bytes).substr(begins[id], begins[id + 1] - begins[id]); }
};

// Throws an Error that names the key and the entry when the file has a damaged tokenizer, or another kind of tokenizer; but with
// `any_kind` the latter gives a vocabulary with a `refusal`, the tokens' texts as they are in the file, and no merges.
Vocabulary read_vocabulary(const ModelFile& file, bool any_kind = false);

} // namespace tq
