// Converts tokenizer.json, or vocab.json and merges.txt, to the metadata that a converter to GGUF writes. The tokenizers of Qwen2
// to Qwen3.5, of SmolLM and of Llama 3 are supported: one that would split texts differently is refused.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/huggingface.h"
#include "model/files/formats/json.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace tq {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t max_tokenizer_bytes = 64u << 20; // tokenizer.json of Qwen3 has 11 MB
constexpr uint64_t max_template_bytes = 1u << 20;

// The patterns that model/text/pre_tokenizer.h implements by hand: with the numbers of Qwen2, and of Llama 3, and with Qwen3.5's
// marks among the letters.
std::string word_pattern(const char* numbers, bool marks = false) {
    return fmt::format("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{{L}}\\p{{N}}]?{}+|{}|"
                       " ?[^\\s\\p{{L}}{}\\p{{N}}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                       marks ? "[\\p{L}\\p{M}]" : "\\p{L}", numbers, marks ? "\\p{M}" : "");
}

enum TokenType : int64_t { hole = 0, normal = 1, control = 3, user_defined = 4, unused = 5 };

// Returns nullptr when `object` is not an object, or its member is absent or null.
const json* member(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The JSON of a tokenizer's file. Its errors begin with the path.
struct Document {
    std::string path;
    json root;

    explicit Document(const fs::path& file) : path(utf8_text(file)), root(read_json_file(file, max_tokenizer_bytes)) {
        if (!root.is_object()) error("it is {}, not an object", kind_of(root));
    }

    template <class... Args> [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}: {}", path, fmt::format(format, std::forward<Args>(args)...));
    }

    const json& object(const json& in, const char* key) const {
        const json* found = member(in, key);
        if (!found || !found->is_object()) error("'{}' is {}, not an object", key, found ? kind_of(*found) : "missing");
        return *found;
    }

    bool boolean(const json& in, const char* key) const {
        const json* found = member(in, key);
        if (found && !found->is_boolean()) error("'{}' is {}, not a boolean", key, kind_of(*found));
        return found && found->get<bool>();
    }
};

// Texts and types by id, collected from several places.
// Ids may have holes and come in any order, from three places: the vocabulary, added_tokens, and tokenizer_config.json.
// config.json says how many there are; ids that no token has become unused entries, as the embedding has a row for each.
class TokenTable {
  public:
    TokenTable(ModelFile& file, uint64_t vocab_size) : file_(file), texts_(vocab_size), types_(vocab_size, hole) {}

    void add_base(const Document& from, const std::string& text, const json& id_json) {
        const uint64_t id = checked(from, text, id_json);
        if (types_[id] != hole) {
            from.error("tokens '{}' and '{}' have the same id {}", printable(texts_[id]), printable(text), id);
        }
        set(id, text, normal);
    }

    // Added tokens may be part of the base vocabulary, too. One without a row of the embedding cannot be given to the model.
    void add_added(const Document& from, const std::string& text, const json& id_json, bool special) {
        if (id_json.is_number_unsigned() && id_json.get<uint64_t>() >= texts_.size()) {
            file_.add_note(fmt::format("{}: the added token '{}' has the id {} and is ignored: 'vocab_size' in config.json is {}",
                                       from.path, printable(text), id_json.get<uint64_t>(), texts_.size()));
            return;
        }
        const uint64_t id = checked(from, text, id_json);
        if (types_[id] != hole && texts_[id] != text) {
            from.error("the added token '{}' has the id {} of token '{}'", printable(text), id, printable(texts_[id]));
        }
        const bool looks_special = text.starts_with("<|") && text.ends_with("|>");
        set(id, text, special || looks_special ? control : user_defined);
    }

    std::optional<uint64_t> find(std::string_view text) const {
        const auto found = std::find(texts_.begin(), texts_.end(), text);
        return found == texts_.end() ? std::nullopt : std::optional(uint64_t(found - texts_.begin()));
    }

    void write() {
        for (uint64_t id = 0; id < texts_.size(); ++id)
            if (types_[id] == hole) set(id, fmt::format("[PAD{}]", id), unused);
        auto& metadata = file_.mutable_metadata();
        metadata.insert_or_assign("tokenizer.ggml.tokens", std::move(texts_));
        metadata.insert_or_assign("tokenizer.ggml.token_type", std::move(types_));
    }

  private:
    uint64_t checked(const Document& from, const std::string& text, const json& id) const {
        if (!id.is_number_unsigned()) from.error("the id of token '{}' is not a whole number of at least 0", printable(text));
        if (id.get<uint64_t>() >= texts_.size()) {
            from.error("token '{}' has the id {}, but 'vocab_size' in config.json is {}", printable(text), id.get<uint64_t>(),
                       texts_.size());
        }
        return id.get<uint64_t>();
    }

    void set(uint64_t id, std::string text, TokenType type) {
        texts_[id] = file_.add_text(std::move(text));
        types_[id] = type;
    }

    ModelFile& file_;
    std::vector<std::string_view> texts_;
    std::vector<int64_t> types_;
};

void set_merges(ModelFile& file, std::vector<std::string_view> merges, const std::string& label) {
    file.set_label("tokenizer.ggml.merges", label);
    file.mutable_metadata().insert_or_assign("tokenizer.ggml.merges", std::move(merges));
}

void add_vocabulary(TokenTable& tokens, const Document& from, const json& vocabulary) {
    for (const auto& [text, id] : vocabulary.items()) tokens.add_base(from, text, id);
}

void add_added_token(TokenTable& tokens, const Document& from, const json& token, const json* id) {
    const json* content = member(token, "content");
    if (!content || !content->is_string() || !id) from.error("an added token has no id or no text 'content'");
    const auto& text = content->get_ref<const std::string&>();
    for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        if (from.boolean(token, key)) from.error("the added token '{}' has '{}', which we do not know", printable(text), key);
    }
    tokens.add_added(from, text, *id, from.boolean(token, "special"));
}

// Checks everything in tokenizer.json that decides how a text is split.
void check_pipeline(const Document& from) {
    const json &root = from.root, &model = from.object(root, "model");
    const auto expect = [&](const json& in, const char* key, std::initializer_list<json> allowed) {
        const json* found = member(in, key);
        if (found && std::find(allowed.begin(), allowed.end(), *found) == allowed.end())
            from.error("'{}' is {}, which the byte-level BPE of Qwen2 does not have", key, printable(found->dump()));
    };
    expect(model, "type", {"BPE"});
    expect(model, "unk_token", {});
    expect(model, "continuing_subword_prefix", {""});
    expect(model, "end_of_word_suffix", {""});
    expect(model, "byte_fallback", {false});
    expect(model, "ignore_merges", {false, true});
    expect(model, "dropout", {0});
    if (const json* decoder = member(root, "decoder")) expect(*decoder, "type", {"ByteLevel"});
}

// The tokens that stand before and behind every text.
struct TextEnds {
    std::optional<std::string> begin, end;
};

// Reads the post_processor: ByteLevel, which changes no tokens, and a template of one text.
void read_post_processor(const Document& from, const json& part, TextEnds& ends) {
    const json *type = member(part, "type"), *list = member(part, "processors"), *single = member(part, "single");
    if (type && *type == "ByteLevel") return;
    if (type && *type == "Sequence" && list && list->is_array()) {
        for (const json& one : *list) read_post_processor(from, one, ends);
        return;
    }
    bool is_known = type && *type == "TemplateProcessing" && single && single->is_array(), has_text = false;
    for (const json& piece : is_known ? *single : json::array()) {
        const json *token = member(piece, "SpecialToken"), *text = member(piece, "Sequence");
        const json* id = token ? member(*token, "id") : nullptr;
        std::optional<std::string>& place = has_text ? ends.end : ends.begin;
        is_known &= text ? !has_text : id && id->is_string() && !place;
        has_text |= text != nullptr;
        if (is_known && id) place = id->get<std::string>();
    }
    if (!is_known || !has_text)
        from.error("'post_processor' is {}; we know ByteLevel, and templates with a token before or behind the text",
                   printable(part.dump(), 200));
}

// Sets the keys of a token before or behind every text.
void set_text_ends(ModelFile& file, const Document& from, const TokenTable& tokens, const TextEnds& ends) {
    const auto set = [&](const char* name, const std::optional<std::string>& token) {
        file.mutable_metadata().insert_or_assign(fmt::format("tokenizer.ggml.add_{}_token", name), token.has_value());
        if (!token) return;
        const auto id = tokens.find(*token);
        if (!id) from.error("the vocabulary has no token '{}', which 'post_processor' adds to texts", printable(*token));
        file.mutable_metadata().insert_or_assign(fmt::format("tokenizer.ggml.{}_token_id", name), *id);
    };
    set("bos", ends.begin);
    if (ends.end) set("eos", ends.end);
}

// Returns GGUF's name of the way in which texts are split: that of Qwen2 or Qwen3.5, after NFC, or of SmolLM or Llama 3, without.
// The splitter is written by hand for four known pipelines (model/text/pre_tokenizer.h). So tokenizer.json's must be one of these
// exactly, text of the regular expression included: nearly the same would split some texts differently, and nothing would show
// it.
const char* read_pre_tokenizer(const Document& from) {
    const json* pre = member(from.root, "pre_tokenizer");
    const json* list =
        pre && member(*pre, "type") && *member(*pre, "type") == "Sequence" ? member(*pre, "pretokenizers") : nullptr;
    const auto is = [](const json& in, const char* key, const json& expected) {
        const json* found = member(in, key);
        return found && *found == expected;
    };
    const auto is_split = [&](const json& part, const std::string& pattern) {
        return is(part, "type", "Split") && is(part, "pattern", {{"Regex", pattern}}) && is(part, "behavior", "Isolated") &&
               is(part, "invert", false);
    };
    const auto is_byte_level = [&](const json& part, bool use_regex) {
        return is(part, "type", "ByteLevel") && is(part, "add_prefix_space", false) && is(part, "use_regex", use_regex);
    };
    const auto is_digits = [&](const json& part) { return is(part, "type", "Digits") && is(part, "individual_digits", true); };
    const json* normalizer = member(from.root, "normalizer");
    const bool is_pair = list && list->is_array() && list->size() == 2;
    const bool whole_words = from.boolean(from.object(from.root, "model"), "ignore_merges");
    if (!normalizer && is_pair && is_split((*list)[0], word_pattern("\\p{N}{1,3}")) && is_byte_level((*list)[1], false))
        return whole_words ? "llama-bpe" : "smaug-bpe"; // the same but for these words
    if (whole_words) from.error("'ignore_merges' is true, which only the tokenizer of Llama 3 has");
    if (!normalizer && is_pair && is_digits((*list)[0]) && is_byte_level((*list)[1], true)) return "smollm";
    const json nfc{{"type", "NFC"}};
    if (!normalizer || *normalizer != nfc) {
        from.error("'normalizer' is {}; we know NFC only", normalizer ? printable(normalizer->dump()) : "missing");
    }
    for (const bool marks : {false, true})
        if (is_pair && is_split((*list)[0], word_pattern("\\p{N}", marks)) && is_byte_level((*list)[1], false))
            return marks ? "qwen35" : "qwen2";
    from.error("'pre_tokenizer' is {}, neither that of Qwen2, Qwen3.5 or Llama 3 (Split by their regular expressions, then "
               "ByteLevel) nor that of SmolLM (Digits, then ByteLevel): its texts would be split in another way",
               pre ? printable(pre->dump()) : "missing");
}

// Returns GGUF's name of its pre-tokenizer.
const char* read_tokenizer_json(ModelFile& file, TokenTable& tokens, const fs::path& path) {
    const Document from(path);
    check_pipeline(from);
    const char* const pre = read_pre_tokenizer(from);
    const json& model = from.object(from.root, "model");
    add_vocabulary(tokens, from, from.object(model, "vocab"));
    const json* added = member(from.root, "added_tokens");
    if (added && !added->is_array()) from.error("'added_tokens' is {}, not a list", kind_of(*added));
    for (const json& token : added ? *added : json::array()) add_added_token(tokens, from, token, member(token, "id"));
    TextEnds ends;
    if (const json* part = member(from.root, "post_processor")) read_post_processor(from, *part, ends);
    set_text_ends(file, from, tokens, ends);
    const json* list = member(model, "merges");
    if (!list || !list->is_array()) from.error("'model.merges' is {}, not a list", list ? kind_of(*list) : "missing");
    std::vector<std::string_view> merges;
    merges.reserve(list->size());
    for (const json& merge : *list) {
        const bool is_pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
        if (!is_pair && !merge.is_string()) from.error("merge {} is neither a string nor a pair of strings", merges.size());
        if (is_pair && merge[0].get_ref<const std::string&>().find(' ') != std::string::npos)
            from.error("merge {} has a token with a space", merges.size());
        merges.push_back(
            file.add_text(is_pair ? merge[0].get<std::string>() + ' ' + merge[1].get<std::string>() : merge.get<std::string>()));
    }
    file.set_label("tokenizer.ggml.tokens", from.path + ": its vocabulary");
    set_merges(file, std::move(merges), from.path + ": 'model.merges'");
    return pre;
}

// Reads the lines "LEFT RIGHT", without a first line that gives the version.
void read_merges_txt(ModelFile& file, const fs::path& path) {
    const std::string_view text = file.add_text(read_text_file(path, max_tokenizer_bytes));
    std::vector<std::string_view> merges;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view line = text.substr(begin, end - begin);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty() && !(begin == 0 && line.starts_with("#version"))) merges.push_back(line);
        begin = end + 1;
    }
    set_merges(file, std::move(merges), utf8_text(path));
}

// Returns GGUF's name of its pre-tokenizer, which these files do not describe: that of Qwen3.5's tokenizer or models, else
// Qwen2's.
const char* read_vocab_and_merges(ModelFile& file, TokenTable& tokens, const fs::path& directory,
                                  const std::optional<Document>& config) {
    if (!config) fail("{}: tokenizer_config.json is missing, which lists the added tokens of vocab.json", utf8_text(directory));
    const json* kind = member(config->root, "tokenizer_class");
    const auto is = [&](const char* name) { return kind && (*kind == name || *kind == std::string(name) + "Fast"); };
    if (!is("Qwen2Tokenizer") && !is("Qwen3_5Tokenizer"))
        config->error("'tokenizer_class' is {}; we know \"Qwen2Tokenizer\" and \"Qwen3_5Tokenizer\" only",
                      kind ? printable(kind->dump()) : "missing");
    const Document vocabulary(directory / "vocab.json");
    add_vocabulary(tokens, vocabulary, vocabulary.root);
    for (const auto& [id, token] : config->object(config->root, "added_tokens_decoder").items()) {
        const bool is_number =
            !id.empty() && id.size() < 10 && std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (!is_number) config->error("'added_tokens_decoder' has the key '{}', which is not a token id", printable(id));
        const json number = std::stoul(id);
        add_added_token(tokens, *config, token, &number);
    }
    file.set_label("tokenizer.ggml.tokens", vocabulary.path);
    read_merges_txt(file, directory / "merges.txt");
    const bool is_qwen35 = file.text("general.architecture", "").starts_with("qwen35");
    return is_qwen35 || is("Qwen3_5Tokenizer") ? "qwen35" : "qwen2";
}

// Returns the chat template: a text, or of a list of {name, template} the one named "default".
std::optional<std::string> template_of(const Document& config) {
    const json* value = member(config.root, "chat_template");
    if (!value) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    for (const json& entry : value->is_array() ? *value : json::array()) {
        const json *name = member(entry, "name"), *text = member(entry, "template");
        if (name && *name == "default" && text && text->is_string()) return text->get<std::string>();
    }
    config.error("'chat_template' is neither a text nor a list with one named \"default\"");
}

void read_chat_template(ModelFile& file, const fs::path& directory, const std::optional<Document>& config) {
    const fs::path own_file = directory / "chat_template.jinja";
    std::optional<std::string> text;
    if (is_there(own_file))
        text = read_text_file(own_file, max_template_bytes);
    else if (config)
        text = template_of(*config);
    if (text) file.mutable_metadata().insert_or_assign("tokenizer.chat_template", file.add_text(std::move(*text)));
}

// Adds tokenizer_config.json's eos_token to the ids that end an answer.
void add_end(ModelFile& file, const TokenTable& tokens, const Document& config) {
    const json* end = member(config.root, "eos_token");
    if (end && end->is_object()) end = member(*end, "content");
    const auto id = end && end->is_string() ? tokens.find(end->get_ref<const std::string&>()) : std::nullopt;
    if (!id) return;
    auto& value = file.mutable_metadata().try_emplace("tokenizer.ggml.eos_token_ids", std::vector<uint64_t>()).first->second;
    std::get<std::vector<uint64_t>>(value).push_back(*id);
    file.mutable_metadata().try_emplace("tokenizer.ggml.eos_token_id", *id);
}

} // namespace

void read_huggingface_tokenizer(ModelFile& file, const fs::path& directory, uint64_t vocab_size) {
    constexpr uint64_t max_vocab = 1u << 24;
    if (vocab_size > max_vocab)
        fail("{}: 'vocab_size' is {}; we can run at most {}", utf8_text(directory / "config.json"), vocab_size, max_vocab);
    const fs::path config_path = directory / "tokenizer_config.json";
    std::optional<Document> config;
    if (is_there(config_path)) config.emplace(config_path);
    TokenTable tokens(file, vocab_size);
    const char* pre = nullptr;
    if (is_there(directory / "tokenizer.json"))
        pre = read_tokenizer_json(file, tokens, directory / "tokenizer.json");
    else if (is_there(directory / "vocab.json") && is_there(directory / "merges.txt"))
        pre = read_vocab_and_merges(file, tokens, directory, config);
    else
        fail("{}: neither tokenizer.json nor vocab.json with merges.txt is there: the tokenizer is missing",
             utf8_text(directory));
    if (config && config->boolean(config->root, "add_bos_token") && !file.boolean("tokenizer.ggml.add_bos_token", false))
        config->error("'add_bos_token' is true, but tokenizer.json has no 'post_processor' with such a token");
    if (config) add_end(file, tokens, *config);
    tokens.write();
    file.mutable_metadata().insert_or_assign("tokenizer.ggml.model", "gpt2");
    file.mutable_metadata().insert_or_assign("tokenizer.ggml.pre", pre);
    read_chat_template(file, directory, config);
}

} // namespace tq
