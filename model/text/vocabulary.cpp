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
#include <span>
#include <string_view>
#include <unordered_map>

namespace tq {
namespace {

constexpr bool prints(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

// The character of each byte, and back.
struct ByteAlphabet {
    std::array<char32_t, 256> character;
    std::array<int, 0x100 + 68> byte; // -1 if there is no byte

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
    for (const std::string_view control :
         {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
          "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"})
        if (text == control) return TokenKind::control;
    return std::nullopt;
}

// Returns the name of tokenizer.ggml.KEY in errors.
std::string label(const ModelFile& file, std::string_view key) {
    const std::string full = fmt::format("tokenizer.ggml.{}", key);
    return file.has_own_label(full) ? file.label(full) : fmt::format("{}: {}", utf8_text(file.path()), full);
}

// A value of tokenizer.ggml.pre.
struct PreTokenizer {
    std::string_view name;
    WordSplitter splitter;
    bool whole_words = false;
    bool begins_with_bos = false; // if tokenizer.ggml.add_bos_token is absent
};

// The first of each splitter is the usual name, the others are names of tokenizers that llama.cpp splits in the same way.
constexpr PreTokenizer pre_tokenizers[] = {
    {"qwen2", WordSplitter::qwen2},
    {"deepseek-r1-qwen", WordSplitter::qwen2},
    {"kormo", WordSplitter::qwen2},
    {"f2llmv2", WordSplitter::qwen2},
    {"megrez", WordSplitter::qwen2},
    {"qwen35", WordSplitter::qwen35},
    {"smollm", WordSplitter::smollm},
    {"codeshell", WordSplitter::smollm},
    {"command-r", WordSplitter::smollm},
    {"exaone", WordSplitter::smollm},
    {"minerva-7b", WordSplitter::smollm},
    {"refact", WordSplitter::smollm},
    {"llama-bpe", WordSplitter::llama3, true, true},
    {"llama3", WordSplitter::llama3, true, true},
    {"llama-v3", WordSplitter::llama3, true, true},
    {"falcon3", WordSplitter::llama3, true, true},
    {"falcon-h1", WordSplitter::llama3, true, true},
    {"jina-v5-nano", WordSplitter::llama3, true, true},
    {"lfm2", WordSplitter::llama3, true, true},
    {"midm-2.0", WordSplitter::llama3, true, true},
    {"pixtral", WordSplitter::llama3, true, true},
    {"dbrx", WordSplitter::llama3},
    {"smaug-bpe", WordSplitter::llama3},
};

// Returns the way in which texts are split; nullptr if there is none, and `refusal` says why.
const PreTokenizer* read_kind(const ModelFile& file, std::string& refusal) {
    const auto refuse = [&](const std::string& why) {
        refusal =
            fmt::format("{}: {}, so that this model runs on token ids (bench), and not on text", utf8_text(file.path()), why);
        return nullptr;
    };
    if (!file.find("tokenizer.ggml.model") || !file.find("tokenizer.ggml.tokens"))
        return refuse("it has no tokenizer.ggml.model or no tokenizer.ggml.tokens");
    const std::string_view model = file.text("tokenizer.ggml.model");
    if (model != "gpt2")
        return refuse(fmt::format("tokenizer.ggml.model is \"{}\"; of tokenizers only \"gpt2\" (byte-level BPE) is supported",
                                  printable(model)));
    constexpr const char* again = "convert the model again with llama.cpp's convert_hf_to_gguf.py";
    if (!file.find("tokenizer.ggml.pre"))
        return refuse(fmt::format("tokenizer.ggml.pre is missing, which says how texts are split ({})", again));
    const std::string_view pre = file.text("tokenizer.ggml.pre");
    const auto* found = std::ranges::find(pre_tokenizers, pre, &PreTokenizer::name);
    if (found != std::end(pre_tokenizers)) return found;
    return refuse(fmt::format(
        "tokenizer.ggml.pre is \"{}\"; only \"qwen2\", \"qwen35\", \"smollm\" and \"llama-bpe\" with their aliases are "
        "supported (if the tokenizer is one of these, {})",
        printable(pre), again));
}

// Texts in angle brackets are a template's. They are no words, and nobody who writes them to the model means the token.
bool looks_like_markup(std::string_view text) { return text.starts_with('<') && text.ends_with('>'); }

// GGUF's token types: 0 undefined, 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Tokens of old files have
// none.
std::vector<int64_t> read_types(const ModelFile& file, std::span<const std::string_view> texts) {
    const ModelFile::Value* value = file.find("tokenizer.ggml.token_type");
    std::vector<int64_t> types;
    if (!value) {
        types.assign(texts.size(), 0);
    } else if (const auto* numbers = std::get_if<std::vector<int64_t>>(value)) {
        types = *numbers;
    } else if (const auto* unsigned_numbers = std::get_if<std::vector<uint64_t>>(value)) {
        for (const uint64_t n : *unsigned_numbers) types.push_back(n <= 6 ? int64_t(n) : -1);
    } else {
        fail("{} is not an array of integers", label(file, "token_type"));
    }
    if (types.size() != texts.size())
        fail("{} has {} entries for {} tokens", label(file, "token_type"), types.size(), texts.size());
    for (size_t id = 0; id < types.size(); ++id) {
        if (types[id] < 0 || types[id] > 6) fail("{}: token {} has an unknown type", label(file, "token_type"), id);
        if (types[id] == 0) types[id] = texts[id].starts_with("<|") && texts[id].ends_with("|>") ? 3 : 1;
    }
    return types;
}

TokenKind kind_of(int64_t type, std::string_view text) {
    if (type == 5) return TokenKind::unused;
    if (const auto known = known_kind(text)) return *known;
    if (type == 1 || type == 6) return TokenKind::base;
    return type != 4 ? TokenKind::control : looks_like_markup(text) ? TokenKind::tag : TokenKind::word;
}

// Returns the bytes of a base token; the text itself if a character of it is not in the alphabet, as Hugging Face does.
std::string base_bytes(std::string_view text, const ByteAlphabet& alphabet) {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = step_utf8(text, pos);
        if (step.code_point >= alphabet.byte.size() || alphabet.byte[step.code_point] < 0) return std::string(text);
        out += char(alphabet.byte[step.code_point]);
        pos += step.length;
    }
    return out;
}

// Reads tokenizer.ggml.* of a file that anybody may have made. Counts, ids, duplicates, UTF-8 and the halves of merges are
// checked here, once, so that encode() and bytes() need no checks but that of an id's range. Texts are views into the mapped file
// until they are copied to Vocabulary::bytes, one string with all tokens: 150,000 strings would be as many allocations.
class Reader {
  public:
    explicit Reader(const ModelFile& file) : file_(file) {}

    Vocabulary read(bool any_kind) {
        vocabulary_.merges_label = label(file_, "merges");
        const PreTokenizer* const pre = read_kind(file_, vocabulary_.refusal);
        if (!pre && !any_kind) fail("{}", vocabulary_.refusal);
        if (pre) {
            vocabulary_.splitter = pre->splitter;
            vocabulary_.whole_words = pre->whole_words;
            read_tokens();
            read_byte_tokens();
            read_merges();
            if (file_.boolean("tokenizer.ggml.add_bos_token", pre->begins_with_bos)) read_bos();
        } else if (file_.find("tokenizer.ggml.tokens")) {
            read_foreign_tokens();
        }
        read_infill();
        read_ends();
        read_spare_id("bos_token_id");
        vocabulary_.padding_id = read_spare_id("padding_token_id");
        return std::move(vocabulary_);
    }

  private:
    // `what` follows the key's name.
    template <class... Args>
    [[noreturn]] void refuse(std::string_view key, fmt::format_string<Args...> what, Args&&... args) const {
        fail("{}{}", label(file_, key), fmt::format(what, std::forward<Args>(args)...));
    }

    // Padding rows of the embedding may repeat a text. So a text may stand twice if one of the two tokens is unused, and it means
    // the other one. Two used tokens of one text, unless it is empty, would make encode() ambiguous, so that file is refused.
    void read_tokens() {
        const std::vector<std::string_view>& texts = file_.strings("tokenizer.ggml.tokens");
        if (texts.empty() || texts.size() > size_t(std::numeric_limits<int32_t>::max()))
            refuse("tokens", " has {} entries", texts.size());
        types_ = read_types(file_, texts);
        ids_.reserve(texts.size());
        vocabulary_.kinds.reserve(texts.size());
        vocabulary_.begins.reserve(texts.size() + 1);
        for (uint32_t id = 0; id < texts.size(); ++id) {
            read_token(id, texts[id], types_[id]);
            const bool is_unused = vocabulary_.kinds[id] == TokenKind::unused;
            const auto [entry, is_new] = ids_.emplace(texts[id], id);
            if (is_new || is_unused || texts[id].empty()) continue;
            if (vocabulary_.kinds[entry->second] != TokenKind::unused)
                refuse("tokens", ": token {} is the same as token {}; the vocabulary is damaged", id, entry->second);
            entry->second = id;
        }
        vocabulary_.begins.push_back(vocabulary_.bytes.size());
    }

    // Keeps the texts as they are: nothing is encoded.
    void read_foreign_tokens() {
        const std::vector<std::string_view>& texts = file_.strings("tokenizer.ggml.tokens");
        if (texts.size() > size_t(std::numeric_limits<int32_t>::max())) refuse("tokens", " has {} entries", texts.size());
        types_ = read_types(file_, texts);
        for (uint32_t id = 0; id < texts.size(); ++id) {
            vocabulary_.kinds.push_back(kind_of(types_[id], texts[id]));
            vocabulary_.begins.push_back(vocabulary_.bytes.size());
            vocabulary_.bytes += texts[id];
        }
        vocabulary_.begins.push_back(vocabulary_.bytes.size());
    }

    void read_token(uint32_t id, std::string_view text, int64_t type) {
        if (find_invalid_utf8(text)) refuse("tokens", ": token {} is not valid UTF-8", id);
        const TokenKind kind = kind_of(type, text);
        const bool is_added = kind == TokenKind::control || kind == TokenKind::tag || kind == TokenKind::word;
        if (is_added && text.size() > SpecialTokens::max_length)
            refuse("tokens", ": added token {} has {} bytes; at most {} are supported", id, text.size(),
                   SpecialTokens::max_length);
        if (is_added && (added_bytes_ += text.size()) > SpecialTokens::max_total)
            refuse("tokens", ": the added tokens up to token {} have {} bytes together; at most {} are supported", id,
                   added_bytes_, SpecialTokens::max_total);
        vocabulary_.kinds.push_back(kind);
        vocabulary_.begins.push_back(vocabulary_.bytes.size());
        vocabulary_.bytes += kind == TokenKind::base ? base_bytes(text, alphabet_) : std::string(text);
    }

    // Returns the id of a token of any type: fine-tunes add tokens that are in the vocabulary already, and so change their type.
    std::optional<uint32_t> find_token(std::string_view text) const {
        const auto entry = ids_.find(text);
        return entry != ids_.end() ? std::optional(entry->second) : std::nullopt;
    }

    std::string letter(size_t byte) const {
        std::string text;
        append_utf8(text, alphabet_.character[byte]);
        return text;
    }

    // Bytes that were in no text of the tokenizer's training have no token in some vocabularies.
    void read_byte_tokens() {
        std::string missing;
        for (size_t byte = 0; byte < 256; ++byte) {
            vocabulary_.byte_ids[byte] = find_token(letter(byte)).value_or(Bpe::none);
            const bool is_ascii_text = (byte >= ' ' && byte < 127) || byte == '\n' || byte == '\t';
            if (vocabulary_.byte_ids[byte] == Bpe::none && is_ascii_text) missing += char(byte);
        }
        if (!missing.empty())
            vocabulary_.notes.push_back(fmt::format("{}: the vocabulary has no tokens for {}: they are left out of texts",
                                                    label(file_, "tokens"), printable(missing)));
    }

    // Returns the id of a token, or of a partial.
    uint32_t find_part(std::string_view text) {
        if (const auto id = find_token(text)) return *id;
        const auto [entry, is_new] =
            partial_ids_.try_emplace(std::string(text), vocabulary_.size() + uint32_t(partial_ids_.size()));
        if (is_new) vocabulary_.partials.push_back(base_bytes(text, alphabet_));
        return entry->second;
    }

    // The place of a merge is its rank, so none may be left out: a line that cannot be understood is an error. The alphabet has
    // no space of its own (a space is U+0120), so the first one in a line divides the halves.
    // A vocabulary that was pruned may lack tokens of merges. These are then joined all the same, as in llama.cpp, because other
    // merges make tokens of them; one that is left in the end has the tokens of its bytes.
    void read_merges() {
        const std::vector<std::string_view>& lines = file_.strings("tokenizer.ggml.merges");
        if (lines.size() > size_t(std::numeric_limits<int32_t>::max())) refuse("merges", " has {} entries", lines.size());
        vocabulary_.merges.reserve(lines.size());
        std::string merged;
        std::string_view first; // of the incomplete ones
        size_t incomplete = 0;
        for (size_t rank = 0; rank < lines.size(); ++rank) {
            const std::string_view line = lines[rank];
            const size_t space = line.find(' ', 1); // from 1, so that neither half is empty
            if (space == line.npos || space + 1 == line.size())
                refuse("merges", ": merge {} is not two tokens and a space", rank);
            const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
            merged.assign(left).append(right);
            const BpeMerge merge{find_part(left), find_part(right), find_part(merged)};
            if (std::max({merge.left, merge.right, merge.merged}) >= vocabulary_.size() && incomplete++ == 0) first = line;
            vocabulary_.merges.push_back(merge);
        }
        for (size_t byte = 0; byte < 256; ++byte)
            if (uint32_t& id = vocabulary_.byte_ids[byte]; id == Bpe::none)
                if (const auto partial = partial_ids_.find(letter(byte)); partial != partial_ids_.end()) id = partial->second;
        if (incomplete > 0)
            vocabulary_.notes.push_back(fmt::format("{}: {} of {} need tokens that are not in the vocabulary, such as \"{}\"",
                                                    label(file_, "merges"), incomplete, lines.size(), printable(first)));
    }

    std::vector<uint32_t> read_ids(const std::string& key) const {
        const std::string full = "tokenizer.ggml." + key;
        std::vector<uint32_t> ids;
        if (!file_.find(full)) return ids;
        for (const uint64_t id : file_.integers(full)) {
            if (id >= vocabulary_.size()) refuse(key, " is {}; there are {} tokens", id, vocabulary_.size());
            ids.push_back(uint32_t(id));
        }
        return ids;
    }

    // Reads every id that ends an answer, as llama.cpp does, and a list of such ids, which other converters write.
    void read_ends() {
        for (const char* key : {"eos_token_id", "eos_token_ids"})
            for (const uint32_t id : read_ids(key)) vocabulary_.stop_ids.push_back(id);
        if (const std::vector<uint32_t> ids = read_ids("eos_token_id"); !ids.empty()) vocabulary_.eos_id = ids[0];
        for (const char* key : {"eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id"})
            if (const auto id = read_spare_id(key)) vocabulary_.stop_ids.push_back(*id);
        if (vocabulary_.infill.file) vocabulary_.stop_ids.push_back(*vocabulary_.infill.file);
        constexpr const char* adds_end = "tokenizer.ggml.add_eos_token"; // to texts for embeddings
        if (file_.boolean(adds_end, false) && !file_.find("tokenizer.ggml.eos_token_id"))
            vocabulary_.notes.push_back(fmt::format("{} is true, which is ignored: there is no tokenizer.ggml.eos_token_id",
                                                    label(file_, "add_eos_token")));
    }

    // The keys name the tokens. If a key is missing, the tokens have these names, as in llama.cpp.
    void read_infill() {
        const auto read = [&](const char* key, std::initializer_list<const char*> names) {
            std::optional<uint32_t> id = read_spare_id(key);
            for (const char* name : names)
                if (!id) id = find_token(name);
            return id;
        };
        vocabulary_.infill = {
            .prefix = read("fim_pre_token_id", {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<|code_prefix|>"}),
            .suffix = read("fim_suf_token_id", {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<|code_suffix|>"}),
            .middle = read("fim_mid_token_id", {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<|code_middle|>"}),
            .file = read("fim_sep_token_id", {"<|file_sep|>"})};
    }

    void read_bos() {
        const std::vector<uint32_t> ids = read_ids("bos_token_id");
        vocabulary_.bos_id = ids.empty() ? find_token("<|begin_of_text|>") : ids[0];
        if (!vocabulary_.bos_id) refuse("bos_token_id", " is missing, and texts begin with it");
    }

    // Returns an id that a model can do without: if it is no token's, a note says that it is ignored. A BOS token that texts
    // begin with is read before.
    std::optional<uint32_t> read_spare_id(const char* key) {
        const std::string full = fmt::format("tokenizer.ggml.{}", key);
        const ModelFile::Value* value = file_.find(full);
        if (!value) return std::nullopt;
        std::string given;
        if (const auto* number = std::get_if<int64_t>(value); number && *number < 0)
            given = std::to_string(*number);
        else if (const uint64_t id = file_.integer(full); id < vocabulary_.size())
            return uint32_t(id);
        else
            given = std::to_string(id);
        vocabulary_.notes.push_back(
            fmt::format("{} is {}, which is ignored: there are {} tokens", label(file_, key), given, vocabulary_.size()));
        return std::nullopt;
    }

    const ModelFile& file_;
    ByteAlphabet alphabet_;
    size_t added_bytes_ = 0;
    std::vector<int64_t> types_;                         // by id
    std::unordered_map<std::string_view, uint32_t> ids_; // of a used token, if there is one of that text
    std::unordered_map<std::string, uint32_t> partial_ids_;
    Vocabulary vocabulary_;
};

} // namespace

Vocabulary read_vocabulary(const ModelFile& file, bool any_kind) { return Reader(file).read(any_kind); }

} // namespace tq
