// Special tokens first, then NFC, words and BPE on the text between them: the order of Hugging Face's tokenizers.
#include "model/text/tokenizer.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/text/bpe.h"
#include "model/text/pre_tokenizer.h"
#include "model/text/special_tokens.h"
#include "model/text/unicode.h"
#include "model/text/vocabulary.h"
#include <algorithm>

namespace tq {
namespace {

SpecialTokens added_tokens(const Vocabulary& vocabulary) {
    std::vector<std::pair<std::string, uint32_t>> literals;
    if (!vocabulary.refusal.empty()) return SpecialTokens({}); // nothing is encoded
    for (uint32_t id = 0; id < vocabulary.size(); ++id)
        if (vocabulary.kinds[id] == TokenKind::control || vocabulary.kinds[id] == TokenKind::tag)
            literals.emplace_back(vocabulary.token(id), id);
    return SpecialTokens(std::move(literals));
}

// GGUF has one eos_token_id where Qwen's generation_config.json has a list.
std::vector<uint32_t> end_ids(const Vocabulary& vocabulary, const SpecialTokens& specials) {
    std::vector<uint32_t> ids = vocabulary.stop_ids;
    for (const char* literal : {"<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"})
        if (const auto id = specials.id(literal)) ids.push_back(*id);
    return ids;
}

} // namespace

struct Tokenizer::Tables {
    bool nfc;
    Vocabulary vocabulary;
    Bpe bpe;
    SpecialTokens specials;
    std::vector<uint32_t> end_of_generation;

    Tables(Vocabulary read, bool use_nfc)
        : nfc(use_nfc && read.splitter == WordSplitter::qwen2), vocabulary(std::move(read)),
          bpe(vocabulary.byte_ids, vocabulary.merges, vocabulary.size()), specials(added_tokens(vocabulary)),
          end_of_generation(end_ids(vocabulary, specials)) {
        vocabulary.merges = {}; // the Bpe has copied them
    }
};

namespace {

// Collects text until a special token or the end, so that the text between special tokens is split as one, however many pieces
// it came in.
class Encoder {
  public:
    Encoder(const Bpe& bpe, const SpecialTokens& specials, WordSplitter splitter, bool nfc)
        : bpe_(bpe), specials_(specials), splitter_(splitter), nfc_(nfc) {}

    void add(std::string_view text, bool markup) {
        size_t pos = 0;
        for (std::optional<SpecialTokens::Match> match; markup && (match = specials_.find(text, pos));) {
            pending_ += text.substr(pos, match->begin - pos);
            flush();
            ids_.push_back(match->id);
            pos = match->begin + match->length;
            consumed_ += match->length;
        }
        pending_ += text.substr(pos);
    }

    std::vector<uint32_t> finish() {
        flush();
        return std::move(ids_);
    }

  private:
    void flush() {
        if (pending_.empty()) return;
        if (const auto bad = find_invalid_utf8(pending_)) fail("the text is not valid UTF-8 at byte {}", consumed_ + *bad);
        consumed_ += pending_.size();
        if (nfc_) pending_ = normalize_nfc(pending_);
        if (pending_.size() >= UINT32_MAX) fail("the text has {} bytes; at most 4 GiB can be tokenized", pending_.size());
        const std::string_view text = pending_;
        for (size_t begin = 0; begin < text.size();) {
            const size_t end = pre_token_end(splitter_, text, begin);
            bpe_.encode(text.substr(begin, end - begin), ids_, scratch_);
            begin = end;
        }
        pending_.clear();
    }

    const Bpe& bpe_;
    const SpecialTokens& specials_;
    const WordSplitter splitter_;
    const bool nfc_;
    std::string pending_;
    size_t consumed_ = 0; // bytes of input before pending_
    std::vector<uint32_t> ids_;
    Bpe::Scratch scratch_;
};

} // namespace

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
    Encoder encoder(tables_->bpe, tables_->specials, tables_->vocabulary.splitter, tables_->nfc);
    encoder.add(text, parse_special);
    return encoder.finish();
}

std::vector<uint32_t> Tokenizer::encode(std::span<const Piece> pieces) const {
    require_text();
    Encoder encoder(tables_->bpe, tables_->specials, tables_->vocabulary.splitter, tables_->nfc);
    for (const Piece& piece : pieces) encoder.add(piece.text, piece.markup);
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

bool Tokenizer::is_end_of_generation(uint32_t id) const {
    const auto& ids = tables_->end_of_generation;
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::optional<uint32_t> Tokenizer::special(std::string_view literal) const { return tables_->specials.id(literal); }

} // namespace tq
