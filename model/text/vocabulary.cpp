// Base tokens are stored in GPT-2's printable alphabet: printable bytes represent themselves, the 68 others are U+0100 and on,
// in ascending order. Added tokens are stored unchanged.
#include "model/text/vocabulary.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/text/special_tokens.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace tq {
namespace {

constexpr bool prints(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

// The character of each byte, and back.
struct ByteAlphabet {
    std::array<char32_t, 256> character;
    std::array<int, 0x100 + 68> byte; // -1 where there is no byte

    ByteAlphabet() {
        byte.fill(-1);
        char32_t next = 0x100;
        for (int b = 0; b < 256; ++b) {
            character[size_t(b)] = prints(b) ? char32_t(b) : next++;
            byte[character[size_t(b)]] = b;
        }
    }
};

// Returns the kind of tokens that the chat template requires: other authors' files give them arbitrary types.
std::optional<TokenKind> known_kind(std::string_view text) {
    for (const std::string_view tag :
         {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"})
        if (text == tag) return TokenKind::tag;
    for (const std::string_view control : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
        if (text == control) return TokenKind::control;
    return std::nullopt;
}

// Returns the name of tokenizer.ggml.KEY in errors.
std::string label(const ModelFile& file, std::string_view key) {
    const std::string full = fmt::format("tokenizer.ggml.{}", key);
    return file.has_own_label(full) ? file.label(full) : fmt::format("{}: {}", utf8_text(file.path()), full);
}

// Sets the splitter of the words, or the refusal.
void read_kind(Vocabulary& vocabulary, const ModelFile& file) {
    const std::string_view model = file.text("tokenizer.ggml.model");
    if (model != "gpt2") {
        vocabulary.refusal = fmt::format("{}: tokenizer.ggml.model is \"{}\"; of tokenizers only \"gpt2\" (byte-level BPE) is "
                                         "supported, so that this model runs on token ids (bench), and not on text",
                                         utf8_text(file.path()), printable(model));
        return;
    }
    if (file.boolean("tokenizer.ggml.add_bos_token", false)) {
        vocabulary.refusal =
            fmt::format("{}: tokenizer.ggml.add_bos_token is true, and tq-run begins no text with a BOS token, so "
                        "that this model runs on token ids (bench), and not on text",
                        utf8_text(file.path()));
        return;
    }
    const std::string_view pre = file.text("tokenizer.ggml.pre");
    if (pre == "smollm")
        vocabulary.splitter = WordSplitter::smollm;
    else if (pre != "qwen2" && pre != "deepseek-r1-qwen" && pre != "kormo")
        vocabulary.refusal = fmt::format("{}: tokenizer.ggml.pre is \"{}\"; only \"qwen2\" with its aliases and \"smollm\" are "
                                         "supported, so that this model runs on token ids (bench), and not on text: if the "
                                         "tokenizer is one of these, convert the model again with llama.cpp's "
                                         "convert_hf_to_gguf.py",
                                         utf8_text(file.path()), printable(pre));
}

// GGUF's token types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
std::vector<int64_t> read_types(const ModelFile& file, size_t count) {
    const ModelFile::Value* value = file.find("tokenizer.ggml.token_type");
    if (!value) fail("{} is missing", label(file, "token_type"));
    std::vector<int64_t> types;
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(value)) {
        types = *numbers;
    } else if (const auto* unsigned_numbers = std::get_if<std::vector<uint64_t>>(value)) {
        for (const uint64_t n : *unsigned_numbers) types.push_back(n <= 6 ? int64_t(n) : 0);
    } else {
        fail("{} is not an array of integers", label(file, "token_type"));
    }
    if (types.size() != count) fail("{} has {} entries for {} tokens", label(file, "token_type"), types.size(), count);
    for (size_t id = 0; id < count; ++id)
        if (types[id] < 1 || types[id] > 6) fail("{}: token {} has an unknown type", label(file, "token_type"), id);
    return types;
}

bool is_base_type(int64_t type) { return type == 1 || type == 6; }

TokenKind kind_of(int64_t type, std::string_view text) {
    if (type == 5) return TokenKind::unused;
    if (const auto known = known_kind(text)) return *known;
    if (is_base_type(type)) return TokenKind::base;
    return type == 4 ? TokenKind::tag : TokenKind::control;
}

// Appends the bytes of a base token's text; returns false when a character of it is not in the alphabet.
bool append_base_bytes(std::string& out, std::string_view text, const ByteAlphabet& alphabet) {
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = step_utf8(text, pos);
        if (step.code_point >= alphabet.byte.size() || alphabet.byte[step.code_point] < 0) return false;
        out += char(alphabet.byte[step.code_point]);
        pos += step.length;
    }
    return true;
}

class Reader {
  public:
    explicit Reader(const ModelFile& file) : file_(file) {}

    Vocabulary read(bool any_kind) {
        read_kind(vocabulary_, file_);
        if (!vocabulary_.refusal.empty()) {
            if (!any_kind) fail("{}", vocabulary_.refusal);
            read_foreign_tokens();
            for (const std::string_view key : {"eos", "eot"}) read_id(key);
            return std::move(vocabulary_);
        }
        read_tokens();
        read_byte_tokens();
        read_merges();
        for (const std::string_view key : {"eos", "eot", "bos", "padding"}) read_id(key);
        read_ends();
        return std::move(vocabulary_);
    }

  private:
    // `what` follows the key's name.
    template <class... Args>
    [[noreturn]] void refuse(std::string_view key, fmt::format_string<Args...> what, Args&&... args) const {
        fail("{}{}", label(file_, key), fmt::format(what, std::forward<Args>(args)...));
    }

    void read_tokens() {
        const std::vector<std::string_view>& texts = file_.strings("tokenizer.ggml.tokens");
        if (texts.empty() || texts.size() > size_t(std::numeric_limits<int32_t>::max()))
            refuse("tokens", " has {} entries", texts.size());
        types_ = read_types(file_, texts.size());
        ids_.reserve(texts.size());
        vocabulary_.kinds.reserve(texts.size());
        vocabulary_.begins.reserve(texts.size() + 1);
        for (uint32_t id = 0; id < texts.size(); ++id) {
            read_token(id, texts[id], types_[id]);
            if (vocabulary_.kinds[id] == TokenKind::unused) continue;
            if (const auto [entry, is_new] = ids_.emplace(texts[id], id); !is_new)
                refuse("tokens", ": token {} is the same as token {}; the vocabulary is damaged", id, entry->second);
        }
        vocabulary_.begins.push_back(vocabulary_.bytes.size());
    }

    // Keeps the texts as they are; byte_ids stay 0, since nothing is encoded.
    void read_foreign_tokens() {
        const std::vector<std::string_view>& texts = file_.strings("tokenizer.ggml.tokens");
        if (texts.size() > size_t(std::numeric_limits<int32_t>::max())) refuse("tokens", " has {} entries", texts.size());
        types_ = read_types(file_, texts.size());
        for (uint32_t id = 0; id < texts.size(); ++id) {
            vocabulary_.kinds.push_back(kind_of(types_[id], texts[id]));
            vocabulary_.begins.push_back(vocabulary_.bytes.size());
            vocabulary_.bytes += texts[id];
        }
        vocabulary_.begins.push_back(vocabulary_.bytes.size());
        vocabulary_.byte_ids = {};
    }

    void read_token(uint32_t id, std::string_view text, int64_t type) {
        if (text.empty() && type != 5) refuse("tokens", ": token {} is empty", id);
        if (find_invalid_utf8(text)) refuse("tokens", ": token {} is not valid UTF-8", id);
        const TokenKind kind = kind_of(type, text);
        const bool is_added = kind == TokenKind::control || kind == TokenKind::tag;
        if (is_added && text.size() > SpecialTokens::max_length)
            refuse("tokens", ": added token {} has {} bytes; at most {} are supported", id, text.size(),
                   SpecialTokens::max_length);
        vocabulary_.kinds.push_back(kind);
        vocabulary_.begins.push_back(vocabulary_.bytes.size());
        if (kind != TokenKind::base)
            vocabulary_.bytes += text;
        else if (!append_base_bytes(vocabulary_.bytes, text, alphabet_))
            refuse("tokens", ": token {} has a character outside the byte alphabet of GPT-2", id);
    }

    // Returns the id of a text that the BPE may produce.
    std::optional<uint32_t> base_token(std::string_view text) const {
        const auto entry = ids_.find(text);
        return entry != ids_.end() && is_base_type(types_[entry->second]) ? std::optional(entry->second) : std::nullopt;
    }

    void read_byte_tokens() {
        for (size_t byte = 0; byte < 256; ++byte) {
            std::string text;
            append_utf8(text, alphabet_.character[byte]);
            const auto id = base_token(text);
            if (!id) refuse("tokens", ": there is no token for the byte {}", byte);
            vocabulary_.byte_ids[byte] = *id;
        }
    }

    void read_merges() {
        const std::vector<std::string_view>& lines = file_.strings("tokenizer.ggml.merges");
        if (lines.size() > size_t(std::numeric_limits<int32_t>::max())) refuse("merges", " has {} entries", lines.size());
        vocabulary_.merges.reserve(lines.size());
        std::string merged;
        for (size_t rank = 0; rank < lines.size(); ++rank) {
            const std::string_view line = lines[rank];
            const size_t space = line.find(' ', 1); // from 1, so that neither half is empty
            if (space == line.npos || space + 1 == line.size())
                refuse("merges", ": merge {} is not two tokens and a space", rank);
            const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
            merged.assign(left).append(right);
            const auto left_id = base_token(left), right_id = base_token(right), merged_id = base_token(merged);
            if (!left_id || !right_id || !merged_id)
                refuse("merges", ": merge {} (\"{}\") needs a token that is not in the vocabulary", rank, printable(line));
            vocabulary_.merges.push_back({*left_id, *right_id, *merged_id});
        }
    }

    void read_id(std::string_view name) {
        const std::string key = fmt::format("{}_token_id", name), full = "tokenizer.ggml." + key;
        if (!file_.find(full)) return;
        const uint64_t id = file_.integer(full);
        if (id >= vocabulary_.size()) refuse(key, " is {}; there are {} tokens", id, vocabulary_.size());
        if (name == "eos" || name == "eot") vocabulary_.stop_ids.push_back(uint32_t(id));
    }

    // Reads every id that ends an answer, where the file has more than one; the key is not one of GGUF's own.
    void read_ends() {
        const auto* value = file_.find("tokenizer.ggml.eos_token_ids");
        const auto* ids = value ? std::get_if<std::vector<uint64_t>>(value) : nullptr;
        for (const uint64_t id : ids ? *ids : std::vector<uint64_t>()) {
            if (id >= vocabulary_.size()) refuse("eos_token_ids", " has {}; there are {} tokens", id, vocabulary_.size());
            vocabulary_.stop_ids.push_back(uint32_t(id));
        }
    }

    const ModelFile& file_;
    ByteAlphabet alphabet_;
    std::vector<int64_t> types_;                         // by id
    std::unordered_map<std::string_view, uint32_t> ids_; // of all tokens but the unused
    Vocabulary vocabulary_;
};

} // namespace

Vocabulary read_vocabulary(const ModelFile& file, bool any_kind) { return Reader(file).read(any_kind); }

} // namespace tq
