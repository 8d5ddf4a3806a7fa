// The tokenizer against Qwen's real vocabulary, and against hostile files and texts.
#include "base/error.h"
#include "model/files/formats/gguf.h"
#include "model/text/tokenizer.h"
#include "model/text/unicode.h"
#include "tests/support/golden.h"
#include "tests/support/qwen3_vocabulary.h"
#include "tests/support/random_text.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include <chrono>
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;

namespace {

using Ids = std::vector<uint32_t>;

// Calls `action` and returns the text of the Error it throws.
template <class Action> std::string error_of(Action action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

double seconds_for(auto action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

TEST_CASE("Qwen3's vocabulary: the reference cases") {
    const auto cases = read_tokenizer_cases(test_data("qwen3-tokenizer/cases.json"));
    REQUIRE(cases.size() == 49);
    check_tokenizer_cases(read_qwen3_vocabulary(), cases);
}

TEST_CASE("Qwen3's vocabulary: NFC, special tokens, ends") { check_nfc_and_special_tokens(read_qwen3_vocabulary()); }

TEST_CASE("Qwen3's vocabulary: whatever is encoded decodes to its NFC") { check_round_trips(read_qwen3_vocabulary()); }

TEST_CASE("a vocabulary of 512 tokens") {
    const Tokenizer tokenizer(read_gguf(test_data("qwen3-mixed.gguf")));
    CHECK(tokenizer.size() == 512);
    CHECK(tokenizer.encode("<|im_start|>") == Ids{497});
    CHECK(tokenizer.special("</think>") == 504u);
    CHECK(tokenizer.is_end_of_generation(498));
    CHECK(tokenizer.is_end_of_generation(496));
    CHECK(!tokenizer.is_end_of_generation(497));
    CHECK(tokenizer.is_unused(511));
}

TEST_CASE("text that is not UTF-8: an Error with the place") {
    const Tokenizer tokenizer(small_vocabulary().open());
    CHECK(contains(error_of([&] { tokenizer.encode("abc\xFF"); }), "not valid UTF-8 at byte 3"));
    CHECK(contains(error_of([&] { tokenizer.encode("a<|im_end|>e\u0301\xC0<|im_end|>"); }), "at byte 14"));
    const std::vector<Piece> pieces{{"<|im_end|>ab", true}, {"c\xE4", false}, {"", true}};
    CHECK(contains(error_of([&] { tokenizer.encode(pieces); }), "at byte 13"));
}

TEST_CASE("a megabyte of anything takes seconds at most") {
    const Tokenizer tokenizer(small_vocabulary().open());
    std::string marks = "e", random_letters;
    while (marks.size() < 1'000'000) marks += "\u0301\u0323"; // in the wrong order, so that NFC must sort them
    std::mt19937 random(5);
    while (random_letters.size() < 1'000'000) random_letters += char('a' + random() % 26);
    const std::string a(1'000'000, 'a'), spaces(1'000'000, ' '), quotes(1'000'000, '\''), brackets(1'000'000, '<');
    for (const std::string& text : {marks, random_letters, a, spaces, quotes, brackets}) {
        Ids ids;
        CHECK(seconds_for([&] { ids = tokenizer.encode(text); }) < 30); // quadratic time would be hours; this is for sanitizers
        CHECK(tokenizer.decode(ids) == normalize_nfc(text));
    }
    CHECK(tokenizer.encode(a).size() == 250'000);
}

TEST_CASE("a megabyte takes seconds at most with any added tokens") {
    VocabularyFile file = small_vocabulary();
    for (size_t i = 0; i < 700; ++i) file.add(std::string(4000, 'a') + std::to_string(i), 4);
    file.add("<" + std::string(4094, '<') + "!", 3);
    const Tokenizer tokenizer(file.open());
    for (const char letter : {'a', '<'}) {
        const std::string text(1'000'000, letter);
        Ids ids;
        CHECK(seconds_for([&] { ids = tokenizer.encode(text); }) < 30); // a look at each position takes minutes
        CHECK(tokenizer.decode(ids) == text);
    }
    CHECK(tokenizer.encode(std::string(4001, 'a') + "699").back() == file.tokens.size() - 2);
}

TEST_CASE("pieces: only markup has special tokens, and only within one piece") {
    const VocabularyFile file = small_vocabulary();
    const Tokenizer tokenizer(file.open());
    const uint32_t end = *tokenizer.special("<|im_end|>"), think = *tokenizer.special("<think>");
    const auto encode = [&](std::vector<Piece> pieces) { return tokenizer.encode(pieces); };
    const auto count = [](const Ids& ids, uint32_t id) { return std::count(ids.begin(), ids.end(), id); };

    CHECK(encode({{"<|im_end|>", true}}) == Ids{end});
    CHECK(encode({{"<|im_end|>", false}}) == tokenizer.encode("<|im_end|>", false));
    CHECK(count(encode({{"<|im_end|>", false}}), end) == 0);
    CHECK(count(encode({{"<think>", false}}), think) == 0);
    CHECK(encode({{"<|im_", true}, {"end|>", true}}) == tokenizer.encode("<|im_end|>", false));
    CHECK(count(encode({{"<|im_end", false}, {"|><|im_end|>", true}}), end) == 1);
    CHECK(encode({{"[PAD]", true}}) == tokenizer.encode("[PAD]", false));

    // Words, merges and NFC extend across the borders of pieces.
    CHECK(encode({{"a", true}, {"a", false}}) == tokenizer.encode("aa"));
    CHECK(encode({{"e", false}, {"\u0301", true}}) == tokenizer.encode("\u00E9"));
    CHECK(encode({{"\xC3", false}, {"\xA9", false}}) == tokenizer.encode("\u00E9"));
    CHECK(encode({}).empty());
    // But not across a special token.
    CHECK(tokenizer.encode("e<think>\u0301").size() == 1 + 1 + 2);

    std::mt19937 random(6);
    for (int i = 0; i < 2000; ++i) {
        const std::string text = utf8(random_text(random, 30));
        std::vector<Piece> pieces;
        for (size_t begin = 0; begin < text.size();) {
            const size_t length = std::min<size_t>(1 + random() % 6, text.size() - begin);
            pieces.push_back({text.substr(begin, length), random() % 2 == 0});
            begin += length;
        }
        REQUIRE(tokenizer.encode(pieces) == tokenizer.encode(text));
    }
}

TEST_CASE("SmolLM's tokenizer splits in its own way, and does not normalise") {
    const VocabularyFile file = small_vocabulary();
    auto keys = file.keys();
    keys["tokenizer.ggml.pre"] = "smollm";
    const Tokenizer smollm(open_keys(keys)), qwen(file.open());
    CHECK(smollm.encode("e\u0301").size() == 3); // bytes: no merge joins them
    CHECK(qwen.encode("e\u0301").size() == 2);   // NFC makes one character of both
    CHECK(smollm.decode(smollm.encode("don't 12 e\u0301")) == "don't 12 e\u0301");
}

TEST_CASE("a tokenizer of another kind has ids and ends, and refuses texts with the reason") {
    const VocabularyFile file = small_vocabulary();
    auto keys = file.keys();
    keys["tokenizer.ggml.model"] = "llama";
    keys["tokenizer.ggml.eos_token_id"] = uint64_t(2);
    const ModelFile spm = open_keys(keys);
    CHECK(contains(error_of([&] { const Tokenizer refused(spm); }), "tokenizer.ggml.model is \"llama\"; of tokenizers only"));
    const Tokenizer tokenizer = Tokenizer::of_any_kind(spm);
    CHECK(tokenizer.size() == file.tokens.size());
    CHECK(tokenizer.bytes(7) == file.tokens[7]);
    CHECK(tokenizer.is_end_of_generation(2));
    CHECK(!tokenizer.is_end_of_generation(3));
    const std::string why = "so that this model runs on token ids (bench), and not on text";
    CHECK(contains(error_of([&] { tokenizer.encode("a"); }), why));
    CHECK(contains(error_of([&] { tokenizer.encode(std::vector<Piece>{{"a", true}}); }), why));
    CHECK(contains(error_of([&] { tokenizer.require_text(); }), why));
    keys["tokenizer.ggml.model"] = "gpt2";
    keys["tokenizer.ggml.pre"] = "tekken";
    CHECK(contains(error_of([&] { Tokenizer::of_any_kind(open_keys(keys)).encode("a"); }), "tokenizer.ggml.pre is \"tekken\""));
    keys["tokenizer.ggml.pre"] = "qwen2";
    CHECK(Tokenizer::of_any_kind(open_keys(keys)).encode("a").size() == 1);
    Tokenizer::of_any_kind(file.open()).require_text();
    CHECK(Tokenizer::of_any_kind(file.open()).encode("aab") == Tokenizer(file.open()).encode("aab"));
}

TEST_CASE("types of tokens, as files have them") {
    VocabularyFile file = small_vocabulary();
    for (size_t id = 0; id < file.tokens.size(); ++id)
        if (file.tokens[id] == "<think>")
            file.types[id] = 1; // as in some files
        else if (file.tokens[id] == "</think>")
            file.types[id] = 3;
    const uint32_t x = file.add("<x>", 4), y = file.add("<y>", 3);
    auto keys = file.keys();
    keys["tokenizer.ggml.eos_token_id"] = uint64_t(x);
    const Tokenizer tokenizer(open_keys(keys));
    for (const char* tag : {"<think>", "</think>"}) {
        REQUIRE(tokenizer.special(tag));
        CHECK(tokenizer.encode(tag) == Ids{*tokenizer.special(tag)});
        CHECK(!tokenizer.is_control(*tokenizer.special(tag)));
    }
    CHECK(tokenizer.encode("<x><y>") == Ids{x, y});
    CHECK(tokenizer.decode(Ids{x, y}) == "<x>");
    CHECK(tokenizer.decode(Ids{x, y}, false) == "<x><y>");
    CHECK(tokenizer.is_end_of_generation(x));
    CHECK(tokenizer.is_end_of_generation(*tokenizer.special("<|im_end|>")));
    CHECK(tokenizer.is_end_of_generation(*tokenizer.special("<|endoftext|>")));
    CHECK(!tokenizer.is_end_of_generation(y));
    CHECK(!tokenizer.is_end_of_generation(UINT32_MAX));
    for (int byte = 0; byte < 256; ++byte) {
        const std::string text(1, char(byte));
        CHECK(tokenizer.bytes(uint32_t(std::find(file.tokens.begin(), file.tokens.end(), VocabularyFile::letter(byte)) -
                                       file.tokens.begin())) == text);
    }
}

TEST_CASE("files that are not a vocabulary of this kind say why") {
    const auto spoil = [](auto change) {
        VocabularyFile file = small_vocabulary();
        auto keys = file.keys();
        if constexpr (std::is_invocable_v<decltype(change), VocabularyFile&>) {
            change(file);
            keys = file.keys();
        } else {
            change(keys);
        }
        return error_of([&] { Tokenizer{open_keys(keys)}; });
    };
    using Keys = std::map<std::string, ModelFile::Value>;
    using File = VocabularyFile;
    for (const char* key : {"model", "pre", "tokens", "merges"})
        CHECK(contains(spoil([&](Keys& keys) { keys.erase(std::string("tokenizer.ggml.") + key); }),
                       std::string("tokenizer.ggml.") + key));
    for (const char* key : {"model", "pre", "tokens", "token_type", "merges", "eos_token_id"})
        CHECK(contains(spoil([&](Keys& keys) { keys[std::string("tokenizer.ggml.") + key] = 1.5; }),
                       std::string("tokenizer.ggml.") + key));
    CHECK(contains(spoil([](Keys& keys) { keys["tokenizer.ggml.model"] = std::string_view("llama"); }), "\"llama\""));
    CHECK(contains(spoil([](Keys& keys) { keys["tokenizer.ggml.pre"] = std::string_view("gpt-2"); }), "\"gpt-2\""));
    CHECK(contains(spoil([&](Keys& keys) { keys["tokenizer.ggml.eos_token_id"] = uint64_t(271); }),
                   "eos_token_id is 271; there are 271 tokens"));
    CHECK(contains(spoil([](Keys& keys) { keys["tokenizer.ggml.tokens"] = std::vector<std::string_view>(); }), "tokens has 0"));

    CHECK(contains(spoil([](File& file) { file.types.pop_back(); }), "token_type has 270 entries for 271 tokens"));
    CHECK(contains(spoil([](File& file) { file.types[3] = 7; }), "token 3 has an unknown type"));
    CHECK(contains(spoil([](File& file) { file.types[3] = -1; }), "token 3 has an unknown type"));
    CHECK(contains(spoil([](File& file) { file.tokens[3] = "\xC3"; }), "token 3 is not valid UTF-8"));
    CHECK(contains(spoil([](File& file) { file.add("aa", 1); }), "token 271 is the same as token 256"));
    CHECK(contains(spoil([](File& file) { file.add(std::string(4097, '<'), 4); }), "4097 bytes"));
    CHECK(contains(spoil([](File& file) {
                       for (int i = 0; i < 1100; ++i) file.add(fmt::format("{:<4000}", i), 4);
                   }),
                   "bytes together; at most 4194304 are supported"));
    for (const char* merge : {"", " ", "a", "a ", " a", "aa"})
        CHECK(contains(spoil([&](File& file) { file.merges[2] = merge; }), "merge 2 is not two tokens"));
    // These are unusual, but not wrong.
    CHECK(spoil([](File& file) { file.add("[PAD]", 5), file.add("", 5); }) == "no error");
    CHECK(spoil([](File& file) { file.merges.pop_back(); }) == "no error");
    CHECK(spoil([](Keys& keys) { keys["tokenizer.ggml.pre"] = std::string_view("deepseek-r1-qwen"); }) == "no error");
    CHECK(spoil([](Keys&) {}) == "no error");
}

TEST_CASE("streams give whole characters") {
    const auto through = [](std::string_view bytes, std::mt19937& random) {
        Utf8Stream stream;
        std::string out;
        for (size_t begin = 0; begin < bytes.size();) {
            const size_t length = std::min<size_t>(random() % 4, bytes.size() - begin);
            const std::string part = stream.push(bytes.substr(begin, length));
            CHECK(!find_invalid_utf8(part));
            out += part;
            begin += length;
        }
        return out + stream.flush();
    };
    std::mt19937 random(7);
    Utf8Stream stream;
    CHECK(stream.push("a\xF0\x9F") == "a");
    CHECK(stream.push("\xA6") == "");
    CHECK(stream.push("\x99!") == "\U0001F999!");
    CHECK(stream.push("\xE4\xB8") == "");
    CHECK(stream.flush() == "\uFFFD");
    CHECK(stream.flush() == "");
    // A U+FFFD for each maximal part of a character (Unicode 15, table 3-8), and the valid bytes after it kept.
    CHECK(through("\x80"
                  "a",
                  random) == "\uFFFDa");
    CHECK(through("\xC0\xAF"
                  "a",
                  random) == "\uFFFD\uFFFDa");
    CHECK(through("\xE4\xB8"
                  "a",
                  random) == "\uFFFDa");
    CHECK(through("\xE4\xB8\u00E9", random) == "\uFFFD\u00E9");
    CHECK(through("\xED\xA0\x80"
                  "a",
                  random) == "\uFFFD\uFFFD\uFFFDa");
    CHECK(through("\xF4\x91\x92\x93\xFF"
                  "A\x80\xBF"
                  "B",
                  random) == "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
    CHECK(through("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                  "A",
                  random) == "\uFFFD\uFFFD\uFFFD\uFFFDA");
    for (int i = 0; i < 2000; ++i) {
        const std::string text = utf8(random_text(random, 20));
        CHECK(through(text, random) == text);
        std::string noise = text;
        for (char& byte : noise)
            if (random() % 4 == 0) byte = char(random());
        Utf8Stream whole;
        const std::string at_once = whole.push(noise);
        CHECK(at_once + whole.flush() == through(noise, random));
    }
}
