// The byte-level BPE tokenizers of Qwen2, Qwen3, Qwen3.5, SmolLM and Llama 3: text to token ids and back. Ids are taken from the
// file: special tokens are found by their text and type, so that a vocabulary of any size works.
#pragma once
#include "model/files/formats/model_file.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// A run of text for encode(): special tokens are recognised in markup, never in text that came from a user or a tool. Words that
// a fine-tune has added are recognised in both.
struct Piece {
    std::string text;
    bool markup = false;
};

// The tokens between which the middle of a text is written, and the one before each of other files.
struct InfillTokens {
    std::optional<uint32_t> prefix, suffix, middle, file;
    bool are_there() const { return prefix && suffix && middle; }
};

class Tokenizer {
  public:
    // Reads tokenizer.ggml.*; throws an Error naming the key when it is missing, malformed or of another tokenizer.
    // `nfc`: normalise text to NFC first, as Hugging Face does for Qwen and llama.cpp does not.
    explicit Tokenizer(const ModelFile& file, bool nfc = true);
    // The same. If the file has another tokenizer, returns one whose encode() throws that Error, for callers that need only ids.
    static Tokenizer of_any_kind(const ModelFile& file);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;

    // Throws the Error of a tokenizer that cannot encode texts.
    void require_text() const;
    // Throws an Error with the byte offset when the text is not valid UTF-8. `parse_special`: the text is markup.
    std::vector<uint32_t> encode(std::string_view text, bool parse_special = true) const;
    // The same for a whole text that a model begins with: behind its BOS token, if it has one and the text does not begin with
    // it.
    std::vector<uint32_t> prompt(std::string_view text, bool parse_special = true) const;
    // Returns the same ids as encode(concatenation), except that special tokens are found only inside one piece of markup. Byte
    // offsets of errors count from the start of the first piece. Throws an Error if markup names a token that the model lacks.
    std::vector<uint32_t> encode(std::span<const Piece> pieces) const;

    // Returns the bytes of a token, for some a part of a character. Special tokens give their literal text. id < size().
    std::string_view bytes(uint32_t id) const;
    // Returns those bytes one after the other; not valid UTF-8 if the ids end within a character. All ids < size().
    std::string decode(std::span<const uint32_t> ids, bool skip_control = true) const;

    uint32_t size() const;
    bool is_control(uint32_t id) const; // not shown to users: <|im_end|> and others, but not <think>; id < size()
    bool is_unused(uint32_t id) const;  // padding rows of the embedding, never to be sampled; id < size()
    // True for the file's end-of-generation ids, and for <|im_end|>, <|endoftext|>, <|eot_id|> and others by their names. Any id.
    bool is_end_of_generation(uint32_t id) const;
    std::optional<uint32_t> special(std::string_view literal) const; // the id of "<think>", ...
    const InfillTokens& infill() const;
    // The ids that the file names for the end of a text and for padding, if it does.
    std::optional<uint32_t> end_id() const;
    std::optional<uint32_t> padding_id() const;
    const std::vector<std::string>& notes() const; // on what was ignored in the file, a sentence each

  private:
    struct Tables;
    class Encoder;
    explicit Tokenizer(std::unique_ptr<const Tables> tables);
    std::unique_ptr<const Tables> tables_;
};

// Joins the bytes of streamed tokens and returns complete UTF-8 characters only. The result does not depend on how the bytes
// are divided.
class Utf8Stream {
  public:
    std::string push(std::string_view bytes); // returns the complete characters; each ill-formed part becomes one U+FFFD
    std::string flush();                      // returns the incomplete tail, as U+FFFD

  private:
    std::string pending_;
};

} // namespace tq
