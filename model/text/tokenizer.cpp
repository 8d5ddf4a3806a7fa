// The order is that of Hugging Face's tokenizers: special tokens first; then, in the text between two of them, NFC, added
// words, words, and BPE within a word. Each step sees only the text that the step before leaves. A special token in a text that
// is no markup (a user's message that spells <|im_end|>) stays text: pieces say what they are. The encoder joins neighbouring
// pieces before it splits them, so that a word that two pieces share has the tokens of the whole word. Words are split by
// hand-written code (pre_tokenizer.h) in place of the models' regular expressions; a model with another expression is refused
// when it is read. Added words are looked for in the normalised text; offsets in errors count the bytes of the original.
#include "model/text/tokenizer.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/bpe.h"
#include "model/text/pre_tokenizer.h"
#include "model/text/special_tokens.h"
#include "model/text/unicode.h"
#include "model/text/vocabulary.h"
#include <algorithm>
#include <unordered_map>

namespace tq {
namespace {

SpecialTokens tokens_of(const Vocabulary& vocabulary, std::initializer_list<TokenKind> kinds) {
    std::vector<std::pair<std::string, uint32_t>> literals;
    if (!vocabulary.refusal.empty()) return SpecialTokens({}); // nothing is encoded
    for (uint32_t id = 0; id < vocabulary.size(); ++id)
        if (std::ranges::find(kinds, vocabulary.kinds[id]) != kinds.end() && !vocabulary.token(id).empty())
            literals.emplace_back(vocabulary.token(id), id);
    return SpecialTokens(std::move(literals));
}

// Returns the bytes of base tokens; empty if words are merged whatever they are.
std::unordered_map<std::string_view, uint32_t> words_of(const Vocabulary& vocabulary) {
    std::unordered_map<std::string_view, uint32_t> words;
    for (uint32_t id = 0; vocabulary.whole_words && id < vocabulary.size(); ++id)
        if (vocabulary.kinds[id] == TokenKind::base) words.emplace(vocabulary.token(id), id);
    return words;
}

// GGUF has one eos_token_id; generation_config.json has a list.
std::vector<uint32_t> end_ids(const Vocabulary& vocabulary, const SpecialTokens& specials) {
    std::vector<uint32_t> ids = vocabulary.stop_ids;
    for (const char* literal : {"<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|eot_id|>",
                                "<|eom_id|>", "<|end_of_text|>"})
        if (const auto id = specials.id(literal)) ids.push_back(*id);
    std::ranges::sort(ids);
    return ids;
}

} // namespace

struct Tokenizer::Tables {
    bool nfc;
    Vocabulary vocabulary;
    Bpe bpe;
    SpecialTokens specials, added_words;
    std::unordered_map<std::string_view, uint32_t> whole_words; // into vocabulary.bytes
    std::vector<uint32_t> end_of_generation;                    // sorted

    Tables(Vocabulary read, bool use_nfc)
        : nfc(use_nfc && (read.splitter == WordSplitter::qwen2 || read.splitter == WordSplitter::qwen35)),
          vocabulary(std::move(read)),
          bpe(vocabulary.byte_ids, vocabulary.merges, vocabulary.size(), std::move(vocabulary.partials)),
          specials(tokens_of(vocabulary, {TokenKind::control, TokenKind::tag})),
          added_words(tokens_of(vocabulary, {TokenKind::word})), whole_words(words_of(vocabulary)),
          end_of_generation(end_ids(vocabulary, specials)) {
        vocabulary.merges = {}; // the Bpe has copied them
        if (bpe.repeated() > 0)
            vocabulary.notes.push_back(fmt::format("{}: {} of them are ignored, as earlier ones join the same tokens",
                                                   vocabulary.merges_label, bpe.repeated()));
    }
};

// Collects text until a special token or the end, so that the text between special tokens is split as one, however many pieces
// it came in.
class Tokenizer::Encoder {
  public:
    explicit Encoder(const Tables& tables) : tables_(tables) {}

    // `strict`: throws an Error if markup names a token that the vocabulary lacks.
    void add(std::string_view text, bool markup, bool strict) {
        size_t pos = 0;
        for (const auto& [begin, length, id] : markup ? tables_.specials.find(text) : std::vector<SpecialTokens::Match>()) {
            if (strict) require_tokens(text.substr(pos, begin - pos));
            pending_ += text.substr(pos, begin - pos);
            flush();
            ids_.push_back(id);
            pos = begin + length;
            consumed_ += length;
        }
        if (strict && markup) require_tokens(text.substr(pos));
        pending_ += text.substr(pos);
    }

    std::vector<uint32_t> finish() {
        flush();
        return std::move(ids_);
    }

  private:
    static void require_tokens(std::string_view text) {
        const size_t begin = text.find("<|"), end = text.find("|>", begin == text.npos ? begin : begin + 2);
        if (end != text.npos)
            fail("the model's vocabulary has no token {}, which the chat template needs: this model was trained on another "
                 "template, "
                 "so that it completes texts (generate, /v1/completions), and does not chat",
                 printable(text.substr(begin, end + 2 - begin)));
    }

    // Bytes are counted before NFC, which changes lengths: errors name places of the input.
    void flush() {
        if (pending_.empty()) return;
        if (const auto bad = find_invalid_utf8(pending_)) fail("the text is not valid UTF-8 at byte {}", consumed_ + *bad);
        consumed_ += pending_.size();
        if (tables_.nfc) pending_ = normalize_nfc(pending_);
        if (pending_.size() >= UINT32_MAX) fail("the text has {} bytes; at most 4 GiB can be tokenized", pending_.size());
        const std::string_view text = pending_;
        size_t pos = 0;
        for (const auto& [begin, length, id] : tables_.added_words.find(text)) {
            split(text.substr(pos, begin - pos));
            ids_.push_back(id);
            pos = begin + length;
        }
        split(text.substr(pos));
        pending_.clear();
    }

    void split(std::string_view text) {
        for (size_t begin = 0; begin < text.size();) {
            const size_t end = pre_token_end(tables_.vocabulary.splitter, text, begin);
            const std::string_view word = text.substr(begin, end - begin);
            const auto whole = tables_.vocabulary.whole_words ? tables_.whole_words.find(word) : tables_.whole_words.end();
            if (whole != tables_.whole_words.end())
                ids_.push_back(whole->second);
            else
                tables_.bpe.encode(word, ids_, scratch_);
            begin = end;
        }
    }

    const Tables& tables_;
    std::string pending_;
    size_t consumed_ = 0; // bytes of input before pending_
    std::vector<uint32_t> ids_;
    Bpe::Scratch scratch_;
};

Tokenizer::Tokenizer(const ModelFile& file, bool nfc) : tables_(std::make_unique<const Tables>(read_vocabulary(file), nfc)) {}
Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::of_any_kind(const ModelFile& file) {
    return Tokenizer(std::make_unique<const Tables>(read_vocabulary(file, true), true));
}

void Tokenizer::require_text() const {
    if (!tables_->vocabulary.refusal.empty()) fail("{}", tables_->vocabulary.refusal);
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
    require_text();
    Encoder encoder(*tables_);
    encoder.add(text, parse_special, false);
    return encoder.finish();
}

// A text that begins with the token of its own accord gets no second one.
std::vector<uint32_t> Tokenizer::prompt(std::string_view text, bool parse_special) const {
    std::vector<uint32_t> ids = encode(text, parse_special);
    const auto bos = tables_->vocabulary.bos_id;
    if (bos && (ids.empty() || ids[0] != *bos)) ids.insert(ids.begin(), *bos);
    return ids;
}

std::vector<uint32_t> Tokenizer::encode(std::span<const Piece> pieces) const {
    require_text();
    Encoder encoder(*tables_);
    for (const Piece& piece : pieces) encoder.add(piece.text, piece.markup, true);
    return encoder.finish();
}

std::string_view Tokenizer::bytes(uint32_t id) const {
    ENSURE(id < size(), "token {} of {}", id, size());
    return tables_->vocabulary.token(id);
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_control) const {
    std::string text;
    for (const uint32_t id : ids)
        if (!skip_control || !is_control(id)) text += bytes(id);
    return text;
}

uint32_t Tokenizer::size() const { return tables_->vocabulary.size(); }

bool Tokenizer::is_control(uint32_t id) const {
    ENSURE(id < size(), "token {} of {}", id, size());
    return tables_->vocabulary.kinds[id] == TokenKind::control;
}

bool Tokenizer::is_unused(uint32_t id) const {
    ENSURE(id < size(), "token {} of {}", id, size());
    return tables_->vocabulary.kinds[id] == TokenKind::unused;
}

bool Tokenizer::is_end_of_generation(uint32_t id) const { return std::ranges::binary_search(tables_->end_of_generation, id); }

std::optional<uint32_t> Tokenizer::special(std::string_view literal) const { return tables_->specials.id(literal); }

const InfillTokens& Tokenizer::infill() const { return tables_->vocabulary.infill; }

std::optional<uint32_t> Tokenizer::end_id() const { return tables_->vocabulary.eos_id; }

std::optional<uint32_t> Tokenizer::padding_id() const { return tables_->vocabulary.padding_id; }

const std::vector<std::string>& Tokenizer::notes() const { return tables_->vocabulary.notes; }

} // namespace tq
