// Tokenizers in Hugging Face's files against the same in GGUF; tokenizers that would split a text differently are refused.
#include "base/error.h"
#include "model/files/formats/huggingface.h"
#include "model/text/tokenizer.h"
#include "tests/support/golden.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/qwen3_vocabulary.h"
#include "tests/support/vocabulary_file.h"
#include <doctest/doctest.h>
#include <fstream>

using namespace tq;
using namespace tq::test;

namespace {

using Ids = std::vector<uint32_t>;
using Ints = std::vector<int64_t>;

constexpr uint64_t small_size = 288; // vocab_size of small_huggingface_model()

ModelFile read(const HuggingFaceFiles& files, uint64_t vocab_size) {
    const TemporaryDirectory directory;
    files.write(directory);
    ModelFile file(directory.path());
    read_huggingface_tokenizer(file, directory.path(), vocab_size);
    return file;
}

// The error of the tokenizer of small_huggingface_model() after `change`, without the directory; "" when there is none.
template <class Change> std::string error_after(Change change) {
    HuggingFaceFiles files = small_huggingface_model();
    change(files);
    const TemporaryDirectory directory;
    files.write(directory);
    try {
        ModelFile file(directory.path());
        read_huggingface_tokenizer(file, directory.path(), small_size);
        Tokenizer tokenizer(file);
        return "";
    } catch (const Error& e) {
        const std::string text = e.what(), begin = directory.path().string();
        CAPTURE(text);
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.size() < 600);
        return text.starts_with(begin) ? text.substr(begin.size()) : text;
    }
}

// The pipeline of SmolLM in a tokenizer.json.
void make_smollm(json& tokenizer) {
    tokenizer["normalizer"] = nullptr;
    tokenizer["pre_tokenizer"]["pretokenizers"] = {
        {{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}};
}

template <class Change> void check_refused(Change change, const std::string& why) {
    const std::string error = error_after(change);
    CAPTURE(error);
    CAPTURE(why);
    CHECK(error.find(why) != std::string::npos);
}

void check_tokenizer_json(const char* pointer, const json& value, const std::string& why) {
    CAPTURE(pointer);
    check_refused([&](HuggingFaceFiles& f) { f.documents["tokenizer.json"][json::json_pointer(pointer)] = value; }, why);
}

// small_huggingface_model() with the other files of a tokenizer.
HuggingFaceFiles small_with_merges_txt() {
    const ModelFile file = read(small_huggingface_model(), small_size);
    HuggingFaceFiles files = small_huggingface_model();
    files.documents.erase("tokenizer.json");
    const auto& tokens = file.strings("tokenizer.ggml.tokens");
    const auto& merges = file.strings("tokenizer.ggml.merges");
    add_vocab_and_merges(files, {tokens.begin(), tokens.end()}, std::get<Ints>(*file.find("tokenizer.ggml.token_type")),
                         {merges.begin(), merges.end()});
    return files;
}

void check_same_metadata(const ModelFile& a, const ModelFile& b) {
    CHECK(a.strings("tokenizer.ggml.tokens") == b.strings("tokenizer.ggml.tokens"));
    CHECK(a.strings("tokenizer.ggml.merges") == b.strings("tokenizer.ggml.merges"));
    CHECK(std::get<Ints>(*a.find("tokenizer.ggml.token_type")) == std::get<Ints>(*b.find("tokenizer.ggml.token_type")));
}

} // namespace

TEST_CASE("Qwen3's vocabulary comes back from each form of Hugging Face's files") {
    check_huggingface_forms(read_qwen3_vocabulary(), read_tokenizer_cases(test_data("qwen3-tokenizer/cases.json")));
}

TEST_CASE("both forms of a small vocabulary are the same, with any line ends") {
    const ModelFile a = read(small_huggingface_model(), small_size);
    HuggingFaceFiles files = small_with_merges_txt();
    check_same_metadata(a, read(files, small_size));
    files.texts["merges.txt"] = "a a\r\n\r\naa aa\r\nu s";
    check_same_metadata(a, read(files, small_size));
    CHECK(a.strings("tokenizer.ggml.tokens").size() == small_size);
    CHECK(a.strings("tokenizer.ggml.tokens")[287] == "[PAD287]");
    const auto& types = std::get<Ints>(*a.find("tokenizer.ggml.token_type"));
    CHECK(types[258] == 1);
    CHECK(types[260] == 3);
    CHECK(types[262] == 4);
    CHECK(types[263] == 5);
}

TEST_CASE("an added token that looks like markup is control, whatever its file says") {
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["tokenizer.json"]["added_tokens"][0]["special"] = false;
    CHECK(std::get<Ints>(*read(files, small_size).find("tokenizer.ggml.token_type"))[259] == 3);
}

TEST_CASE("a pipeline that would split texts otherwise is refused") {
    const std::string file = "/tokenizer.json: ";
    check_tokenizer_json("/model/type", "WordPiece",
                         file + "'type' is \"WordPiece\", which the byte-level BPE of Qwen2 does not have");
    check_tokenizer_json("/model/unk_token", "<unk>", "'unk_token' is \"<unk>\"");
    check_tokenizer_json("/model/continuing_subword_prefix", "##", "'continuing_subword_prefix' is \"##\"");
    check_tokenizer_json("/model/end_of_word_suffix", "</w>", "'end_of_word_suffix' is");
    check_tokenizer_json("/model/byte_fallback", true, "'byte_fallback' is true");
    check_tokenizer_json("/model/ignore_merges", true, "'ignore_merges' is true");
    check_tokenizer_json("/model/dropout", 0.1, "'dropout' is 0.1");
    check_tokenizer_json("/normalizer", nullptr, "'normalizer' is missing; we know NFC only");
    check_tokenizer_json("/normalizer/type", "NFKC", R"('normalizer' is {"type":"NFKC"})");
    check_tokenizer_json("/decoder/type", "Metaspace", "'type' is \"Metaspace\"");
    check_tokenizer_json("/post_processor/type", "TemplateProcessing", "; we know ByteLevel, and templates with a token before");
    check_tokenizer_json("/post_processor/type", "RobertaProcessing", "'post_processor' is {");
    for (const auto& [pointer, value] : {std::pair<const char*, json>("/pre_tokenizer", nullptr),
                                         {"/pre_tokenizer/type", "ByteLevel"},
                                         {"/pre_tokenizer/type", 1},
                                         {"/pre_tokenizer/pretokenizers", 1},
                                         {"/pre_tokenizer/pretokenizers/0/type", "Digits"},
                                         {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{N}{1,3}"},
                                         {"/pre_tokenizer/pretokenizers/0/behavior", "Removed"},
                                         {"/pre_tokenizer/pretokenizers/0/invert", true},
                                         {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true},
                                         {"/pre_tokenizer/pretokenizers/1/use_regex", true},
                                         {"/pre_tokenizer/pretokenizers/2", 1}})
        check_tokenizer_json(pointer, value,
                             "that of Qwen2, Qwen3.5 or Llama 3 (Split by their regular expressions, then ByteLevel)");
}

TEST_CASE("the pipeline of Qwen3.5 is known by its regex") {
    HuggingFaceFiles files = small_huggingface_model();
    json& regex = files.documents["tokenizer.json"]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
    CHECK(read(files, small_size).text("tokenizer.ggml.pre") == "qwen2");
    regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const ModelFile file = read(files, small_size);
    CHECK(file.text("tokenizer.ggml.pre") == "qwen35");
    CHECK(Tokenizer(file).encode("e\u0301") == Tokenizer(file, false).encode("\u00E9")); // NFC comes first
    regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    CHECK_THROWS_AS(read(files, small_size), Error); // marks are letters in one half of it only
}

TEST_CASE("the pipeline of SmolLM is known, and only as a whole") {
    HuggingFaceFiles files = small_huggingface_model();
    make_smollm(files.documents["tokenizer.json"]);
    const ModelFile file = read(files, small_size);
    CHECK(file.text("tokenizer.ggml.pre") == "smollm");
    CHECK(Tokenizer(file).encode("a 1").size() == 3);
    const auto refused = [](const char* pointer, const json& value, const char* why) {
        check_refused(
            [&](HuggingFaceFiles& f) {
                make_smollm(f.documents["tokenizer.json"]);
                f.documents["tokenizer.json"][json::json_pointer(pointer)] = value;
            },
            why);
    };
    refused("/pre_tokenizer/pretokenizers/0/individual_digits", false, "'normalizer' is missing");
    refused("/pre_tokenizer/pretokenizers/1/use_regex", false, "'normalizer' is missing");
    refused("/normalizer", {{"type", "NFC"}}, "nor that of SmolLM (Digits, then ByteLevel)");
}

TEST_CASE("a damaged vocabulary is refused by token") {
    check_tokenizer_json("/model", 1, "/tokenizer.json: 'model' is an integer, not an object");
    check_tokenizer_json("/model/vocab", json::array(), "'vocab' is a list, not an object");
    check_tokenizer_json("/model/vocab/x", 5, "have the same id 5");
    check_tokenizer_json("/model/vocab/zz", 288, "token 'zz' has the id 288, but 'vocab_size' in config.json is 288");
    check_tokenizer_json("/model/vocab/zz", UINT64_MAX, "token 'zz' has the id 18446744073709551615");
    check_tokenizer_json("/model/vocab/zz", -1, "the id of token 'zz' is not a whole number");
    check_tokenizer_json("/model/vocab/zz", "5", "the id of token 'zz' is not a whole number");
    check_tokenizer_json("/added_tokens", 1, "'added_tokens' is an integer, not a list");
    check_tokenizer_json("/added_tokens/0", 1, "an added token has no id or no text 'content'");
    check_tokenizer_json("/added_tokens/0/id", nullptr, "an added token has no id");
    check_tokenizer_json("/added_tokens/0/id", 3, "the added token '<|endoftext|>' has the id 3 of token '$'");
    check_tokenizer_json("/added_tokens/0/content", "<|im_end|>", "token 260 is the same as token 259");
    check_tokenizer_json("/added_tokens/0/lstrip", true, "the added token '<|endoftext|>' has 'lstrip'");
    check_tokenizer_json("/added_tokens/0/special", 1, "'special' is an integer, not a boolean");
    check_tokenizer_json("/model/merges", nullptr, "'model.merges' is missing, not a list");
    check_tokenizer_json("/model/merges/1", 5, "merge 1 is neither a string nor a pair of strings");
    check_tokenizer_json("/model/merges/1", {"a", "b", "c"}, "merge 1 is neither a string nor a pair of strings");
    check_tokenizer_json("/model/merges/1", {"a a", "b"}, "merge 1 has a token with a space");
    check_tokenizer_json("/model/merges/1", "aaaa", "/tokenizer.json: 'model.merges': merge 1 is not two tokens");
    check_refused([](HuggingFaceFiles& f) { f.documents.erase("tokenizer.json"); },
                  "neither tokenizer.json nor vocab.json with merges.txt");
    check_refused([](HuggingFaceFiles& f) { f.documents["tokenizer.json"] = std::vector<int>((1 << 22) + 1); },
                  "/tokenizer.json: it has more than 4194304 values");
    check_refused([](HuggingFaceFiles& f) { f.documents["tokenizer.json"] = 1; },
                  "/tokenizer.json: it is an integer, not an object");
}

TEST_CASE("vocab.json and merges.txt: texts are split as Qwen3.5's where config.json or the tokenizer's class says so") {
    HuggingFaceFiles files = small_with_merges_txt();
    const auto pre = [&](const char* architecture) {
        const TemporaryDirectory directory;
        files.write(directory);
        ModelFile file(directory.path());
        if (*architecture != '\0') file.mutable_metadata()["general.architecture"] = std::string_view(architecture);
        read_huggingface_tokenizer(file, directory.path(), small_size);
        return std::string(file.text("tokenizer.ggml.pre"));
    };
    for (const char* architecture : {"", "qwen2", "qwen3", "qwen3next"}) CHECK(pre(architecture) == "qwen2");
    for (const char* architecture : {"qwen35", "qwen35moe"}) CHECK(pre(architecture) == "qwen35");
    files.documents["tokenizer_config.json"]["tokenizer_class"] = "Qwen3_5TokenizerFast";
    CHECK(pre("") == "qwen35");
}

TEST_CASE("vocab.json and merges.txt: what is damaged is refused by file") {
    const auto refused = [](auto change, const std::string& why) {
        check_refused(
            [&](HuggingFaceFiles& f) {
                f = small_with_merges_txt();
                change(f);
            },
            why);
    };
    refused([](HuggingFaceFiles& f) { f.documents.erase("tokenizer_config.json"); }, "tokenizer_config.json is missing");
    refused([](HuggingFaceFiles& f) { f.documents["tokenizer_config.json"]["tokenizer_class"] = "GPT2Tokenizer"; },
            "/tokenizer_config.json: 'tokenizer_class' is \"GPT2Tokenizer\"; we know \"Qwen2Tokenizer\" and \"Qwen3_5Tokenizer\" "
            "only");
    refused([](HuggingFaceFiles& f) { f.documents["tokenizer_config.json"].erase("added_tokens_decoder"); },
            "'added_tokens_decoder' is missing, not an object");
    for (const char* key : {"x", "", "-1", "1234567890", "1 "})
        refused(
            [&](HuggingFaceFiles& f) {
                f.documents["tokenizer_config.json"]["added_tokens_decoder"][key] = {{"content", "x"}};
            },
            "which is not a token id");
    refused([](HuggingFaceFiles& f) { f.documents["vocab.json"] = json::array(); }, "/vocab.json: it is a list, not an object");
    refused([](HuggingFaceFiles& f) { f.documents["vocab.json"]["zz"] = "x"; }, "/vocab.json: the id of token 'zz'");
    refused([](HuggingFaceFiles& f) { f.texts["merges.txt"] = "a a\nb\n"; },
            "/merges.txt: merge 1 is not two tokens and a space");
    refused([](HuggingFaceFiles& f) { f.texts.erase("merges.txt"); }, "neither tokenizer.json nor vocab.json with merges.txt");
}
