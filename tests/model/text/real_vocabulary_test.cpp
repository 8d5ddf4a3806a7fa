// Peculiarities of real models' vocabularies: bytes without tokens, words of fine-tunes, several ends, another splitter.
#include "base/error.h"
#include "model/text/tokenizer.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <random>

using namespace tq;
using namespace tq::test;

namespace {

using Ids = std::vector<uint32_t>;
using Keys = std::map<std::string, ModelFile::Value>;

// The bytes that have no token in SmolLM's and SmolLM2's vocabularies.
constexpr std::string_view smollm_lacks = "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";

// Adds merges of random pairs until there are `tokens` tokens.
void grow(VocabularyFile& file, size_t tokens, size_t first) {
    std::mt19937 random(3);
    std::map<std::string, size_t> known;
    for (size_t id = 0; id < file.tokens.size(); ++id) known.emplace(file.tokens[id], id);
    while (file.tokens.size() < tokens) {
        const auto any = [&] { return file.tokens[first + random() % (file.tokens.size() - first)]; };
        const std::string left = any(), right = any();
        if (!known.emplace(left + right, file.tokens.size()).second || left.size() + right.size() > 32) continue;
        file.merges.push_back(left + ' ' + right);
        file.add(left + right, 1);
    }
}

// SmolLM2's shape: 17 added tokens, 235 bytes, 48900 merges.
VocabularyFile smollm_vocabulary() {
    VocabularyFile bytes, file;
    file.tokens.clear(), file.types.clear();
    for (const char* added : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>",
                              "<filename>", "<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>",
                              "<jupyter_text>", "<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>"})
        file.add(added, 3);
    for (const std::string& letter : bytes.tokens) {
        const auto is_letter_of = [&](char byte) { return VocabularyFile::letter(uint8_t(byte)) == letter; };
        if (std::ranges::none_of(smollm_lacks, is_letter_of)) file.add(letter, 1);
    }
    grow(file, 49152, 17);
    return file;
}

Keys keys_with(const VocabularyFile& file, const Keys& more) {
    Keys keys = file.keys();
    for (const auto& [key, value] : more) keys[key] = value;
    return keys;
}

Tokenizer tokenizer_with(const VocabularyFile& file, const Keys& more) { return Tokenizer(open_keys(keys_with(file, more))); }

template <class Action> std::string error_of(Action action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

const Keys smollm{{"tokenizer.ggml.pre", std::string_view("smollm")}},
    llama3{{"tokenizer.ggml.pre", std::string_view("llama-bpe")}};

// Llama 3's added tokens after a few merges.
VocabularyFile small_llama3() {
    VocabularyFile file;
    for (const auto& [left, right] : {std::pair("1", "2"), {"12", "3"}, {"a", "b"}, {"c", "d"}}) file.merge(left, right);
    file.add("abcd", 1); // which no merge makes
    for (const char* added : {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
                              "<|eot_id|>", "<|python_tag|>"})
        file.add(added, 3);
    return file;
}

uint32_t id_of(const VocabularyFile& file, const std::string& token) {
    return uint32_t(std::ranges::find(file.tokens, token) - file.tokens.begin());
}

} // namespace

TEST_CASE("SmolLM's vocabulary: bytes that have no token are left out of texts") {
    const VocabularyFile file = smollm_vocabulary();
    REQUIRE(file.merges.size() == 48900);
    REQUIRE(id_of(file, VocabularyFile::letter('\n')) == 198);
    const Tokenizer tokenizer = tokenizer_with(file, smollm);
    CHECK(tokenizer.size() == 49152);
    CHECK(tokenizer.notes().empty()); // no text that people write has these bytes
    for (const char* text : {"a\x04"
                             "b\x06"
                             "c",
                             "\x13\x14", "x \x16\x16 y",
                             "1\x1d"
                             "2",
                             "!\x04!"}) {
        std::string kept = text;
        std::erase_if(kept, [](char c) { return smollm_lacks.find(c) != smollm_lacks.npos; });
        CHECK(tokenizer.decode(tokenizer.encode(text)) == kept);
    }
    CHECK(tokenizer.encode("\x04").empty());
    CHECK(tokenizer.decode(tokenizer.encode("\U000E0041")) == "\U000E0041"); // F3 has a token, F1, F2 and F5 on have none
    CHECK(tokenizer.decode(tokenizer.encode("Hello\nworld <|im_end|> 123 caf\u00E9 \U0001F999")) ==
          "Hello\nworld  123 caf\u00E9 \U0001F999");
}

TEST_CASE("what is left of a word without such bytes is merged, as Hugging Face does") {
    VocabularyFile file;
    file.tokens[id_of(file, VocabularyFile::letter(4))] = "zz";
    const uint32_t twice = file.merge("!", "!");
    const Tokenizer tokenizer = tokenizer_with(file, smollm);
    CHECK(tokenizer.encode("!\x04!") == Ids{twice});
    CHECK(tokenizer.encode("!\x04\x04!\x04") == Ids{twice});
}

TEST_CASE("a vocabulary without some of ASCII loads, with a note") {
    VocabularyFile file = small_vocabulary();
    file.tokens[id_of(file, "E")] = "zz";
    const Tokenizer tokenizer(file.open());
    CHECK(tokenizer.decode(tokenizer.encode("an Ear")) == "an ar");
    REQUIRE(tokenizer.notes().size() == 1);
    CHECK(contains(tokenizer.notes()[0], "the vocabulary has no tokens for E: they are left out of texts"));
}

TEST_CASE("bytes, merges and words may be added tokens, too") {
    VocabularyFile file = small_vocabulary();
    const uint32_t in = file.merge("i", "n"), ing = file.merge("in", "g");
    const Tokenizer plain(file.open());
    for (const int64_t type : {3, 4, 5}) {
        CAPTURE(type);
        file.types[id_of(file, "a")] = file.types[in] = type;
        const Tokenizer tokenizer(file.open());
        CHECK(tokenizer.bytes(in) == "in");
        CHECK(tokenizer.encode("i", false) == plain.encode("i"));
        if (type != 4) CHECK(tokenizer.encode("ainging", false) == Ids{id_of(file, "a"), ing, ing});
    }
    file.types[id_of(file, "a")] = file.types[in] = 4; // words are found before anything is merged
    CHECK(Tokenizer(file.open()).encode("aing", false) == Ids{id_of(file, "a"), in, id_of(file, "g")});
}

TEST_CASE("added words are found in all texts, markup in the template's alone") {
    VocabularyFile file = small_vocabulary();
    const uint32_t court = file.add("apportionment", 4), phrase = file.add("in re", 4), cafe = file.add("caf\u00E9", 4),
                   prefix = file.add("app", 4), tag = file.add("<verdict>", 4);
    const Tokenizer tokenizer(file.open());
    for (const bool markup : {false, true}) {
        CAPTURE(markup);
        const Ids space = tokenizer.encode(" ");
        CHECK(tokenizer.encode("apportionment", markup) == Ids{court});
        CHECK(tokenizer.encode("apportionment in re", markup) == Ids{court, space[0], phrase});
        CHECK(tokenizer.encode("xapportionmentx", markup).size() == 3);
        CHECK(tokenizer.encode("apportion", markup)[0] == prefix);
        CHECK(tokenizer.encode("cafe\u0301", markup) == Ids{cafe}); // normalised before
        CHECK(tokenizer.encode(std::vector<Piece>{{"appor", false}, {"tionment", markup}}) == Ids{court});
        CHECK((tokenizer.encode("<verdict>", markup) == Ids{tag}) == markup);
        CHECK((tokenizer.encode("<think>", markup).size() == 1) == markup);
        CHECK((tokenizer.encode("<|im_end|>", markup).size() == 1) == markup);
    }
    CHECK(!tokenizer.is_control(court));
    CHECK(tokenizer.decode(Ids{court, phrase}) == "apportionmentin re");
    CHECK(!tokenizer.special("apportionment"));
}

TEST_CASE("answers end with every id that the file names, whatever the type of its list") {
    VocabularyFile file = small_vocabulary();
    const uint32_t stop = file.add("<|stop_x|>", 3), other = file.add("<|stop_y|>", 3);
    using Signed = std::vector<int64_t>;
    using Unsigned = std::vector<uint64_t>;
    const std::string_view list = "tokenizer.ggml.eos_token_ids";
    for (const ModelFile::Value& value :
         {ModelFile::Value(Signed{stop, other}), ModelFile::Value(Unsigned{stop, other}), ModelFile::Value(uint64_t(stop))}) {
        const Tokenizer tokenizer = tokenizer_with(file, {{std::string(list), value}});
        CHECK(tokenizer.is_end_of_generation(stop));
        CHECK(tokenizer.is_end_of_generation(other) == (value.index() >= 5));
    }
    for (const char* name : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
        const Keys key{{fmt::format("tokenizer.ggml.{}_token_id", name), uint64_t(stop)}};
        CHECK(tokenizer_with(file, key).is_end_of_generation(stop));
        CHECK(!tokenizer_with(file, key).is_end_of_generation(other));
    }
    const auto error = [&](const ModelFile::Value& value) {
        return error_of([&] { tokenizer_with(file, {{std::string(list), value}}); });
    };
    CHECK(contains(error(std::vector<double>{1}), "'tokenizer.ggml.eos_token_ids' is a list of numbers, not a list of integers"));
    CHECK(contains(error(std::string_view("2")), "is a text, not a list of integers"));
    CHECK(contains(error(Signed{-1}), "has -1, less than 0"));
    CHECK(contains(error(Signed{int64_t(file.tokens.size())}), "eos_token_ids is 273; there are 273 tokens"));
}

namespace {

// llama.cpp's way with texts of one word: merges join texts, tokens or not, and what is no token in the end has the tokens of its
// characters.
Ids textual_bpe(const VocabularyFile& file, const std::string& word) {
    std::vector<std::string> parts;
    for (const char letter : word) parts.emplace_back(1, letter);
    const auto rank_of = [&](size_t i) {
        return std::ranges::find(file.merges, parts[i] + ' ' + parts[i + 1]) - file.merges.begin();
    };
    for (;;) {
        size_t best = parts.size();
        for (size_t i = 0; i + 1 < parts.size(); ++i)
            if (rank_of(i) < std::ssize(file.merges) && (best == parts.size() || rank_of(i) < rank_of(best))) best = i;
        if (best == parts.size()) break;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + ptrdiff_t(best) + 1);
    }
    Ids ids;
    const auto push = [&](const std::string& text) {
        const auto found = std::ranges::find(file.tokens, text);
        if (found != file.tokens.end()) ids.push_back(uint32_t(found - file.tokens.begin()));
        return found != file.tokens.end();
    };
    for (const std::string& part : parts)
        if (!push(part))
            for (const char letter : part) push(std::string(1, letter));
    return ids;
}

} // namespace

TEST_CASE("a pruned vocabulary with all of its merges, and merges that are there twice") {
    std::mt19937 random(11);
    for (int round = 0; round < 100; ++round) {
        VocabularyFile file;
        std::vector<std::string> texts{"a", "b", "c"};
        for (int n = 0; n < 12; ++n) {
            const std::string left = texts[random() % texts.size()], right = texts[random() % texts.size()];
            file.merges.push_back(left + ' ' + right);
            texts.push_back(left + right);
        }
        const bool lacks_letter = round % 4 == 0;
        if (lacks_letter) file.tokens[size_t(std::ranges::find(file.tokens, "b") - file.tokens.begin())] = "<|x|>";
        for (const std::string& text : texts)
            if (text.size() > 1 && random() % 2 == 0 && std::ranges::find(file.tokens, text) == file.tokens.end())
                file.add(text, 1);
        const Tokenizer tokenizer(file.open());
        for (int i = 0; i < 20; ++i) {
            std::string word;
            for (size_t n = random() % 24; n > 0; --n) word += char('a' + random() % 3);
            CAPTURE(word);
            REQUIRE(tokenizer.encode(word) == textual_bpe(file, word));
        }
    }
    VocabularyFile file = small_vocabulary();
    file.merges.insert(file.merges.end(), {"a a", "q z", "qz a"});
    const Tokenizer tokenizer(file.open());
    REQUIRE(tokenizer.notes().size() == 2);
    CHECK(contains(tokenizer.notes()[0],
                   fmt::format("tokenizer.ggml.merges: 2 of {} need tokens that are not in the vocabulary, such as \"q z\"",
                               file.merges.size())));
    CHECK(contains(tokenizer.notes()[1], "tokenizer.ggml.merges: 1 of them are ignored, as earlier ones join the same tokens"));
    CHECK(tokenizer.encode("aaqza") == textual_bpe(file, "aaqza"));
}

TEST_CASE("tokens for the middle of a text, by keys or by names") {
    VocabularyFile file = small_vocabulary();
    const uint32_t prefix = file.add("<fim_prefix>", 1), suffix = file.add("<fim_suffix>", 3),
                   middle = file.add("<fim_middle>", 4), other = file.add("<middle>", 3);
    const InfillTokens named = Tokenizer(file.open()).infill();
    CHECK(named.are_there());
    CHECK(named.prefix == prefix);
    CHECK(named.suffix == suffix);
    CHECK(named.middle == middle);
    CHECK(!named.file);
    CHECK(tokenizer_with(file, {{"tokenizer.ggml.fim_mid_token_id", uint64_t(other)}}).infill().middle == other);
    CHECK(tokenizer_with(file, {{"tokenizer.ggml.fim_sep_token_id", uint64_t(other)}}).infill().file == other);
    CHECK(!Tokenizer(small_vocabulary().open()).infill().are_there());
}

TEST_CASE("an end for embeddings that the file lacks is noted") {
    const VocabularyFile file = small_vocabulary();
    const Tokenizer tokenizer = tokenizer_with(file, {{"tokenizer.ggml.add_eos_token", true}});
    REQUIRE(tokenizer.notes().size() == 1);
    CHECK(contains(tokenizer.notes()[0], "tokenizer.ggml.add_eos_token is true, which is ignored: there is no"));
}

TEST_CASE("ids that nothing needs are noted and ignored, where they are none of the vocabulary's") {
    const VocabularyFile file = small_vocabulary();
    for (const char* name : {"bos", "padding", "eot", "eom", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"})
        for (const ModelFile::Value& value : {ModelFile::Value(uint64_t(9999)), ModelFile::Value(int64_t(-1))}) {
            const Tokenizer tokenizer = tokenizer_with(file, {{fmt::format("tokenizer.ggml.{}_token_id", name), value}});
            REQUIRE(tokenizer.notes().size() == 1);
            CHECK(contains(tokenizer.notes()[0], fmt::format("tokenizer.ggml.{}_token_id is {}, which is ignored: there are 271 "
                                                             "tokens",
                                                             name, value.index() == 0 ? "9999" : "-1")));
        }
    CHECK(tokenizer_with(file, {{"tokenizer.ggml.padding_token_id", uint64_t(3)}}).notes().empty());
    CHECK(contains(error_of([&] {
                       tokenizer_with(file, {{"tokenizer.ggml.padding_token_id", std::string_view("x")}});
                   }),
                   "tokenizer.ggml.padding_token_id' is a text, not an integer"));
    for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.padding_token_id"})
        CHECK(contains(error_of([&] {
                           tokenizer_with(file, {{key, 1.5}});
                       }),
                       fmt::format("key '{}' is a real number, not an integer", key)));
}

TEST_CASE("tokens that old and foreign writers have") {
    VocabularyFile file = small_vocabulary();
    const uint32_t empty = file.add("", 1), space = file.add("two words", 1), cjk = file.add("\u65E5\u672C", 1);
    file.add("", 1);
    const std::string long_text(1000, 'x');
    const uint32_t long_token = file.add("<" + long_text + ">", 3);
    const Tokenizer tokenizer(file.open());
    CHECK(tokenizer.bytes(empty).empty());
    CHECK(tokenizer.bytes(space) == "two words");
    CHECK(tokenizer.bytes(cjk) == "\u65E5\u672C");
    CHECK(tokenizer.encode("a<" + long_text + ">a") == Ids{id_of(file, "a"), long_token, id_of(file, "a")});
    CHECK(tokenizer.decode(tokenizer.encode("two words \u65E5\u672C")) == "two words \u65E5\u672C");
    Keys keys = file.keys();
    keys.erase("tokenizer.ggml.token_type");
    const Tokenizer untyped(open_keys(keys));
    CHECK(untyped.is_control(*untyped.special("<|im_start|>")));
    CHECK(untyped.encode("a<|im_end|><think>").size() == 3);
    CHECK(!untyped.is_control(id_of(file, "a")));
    keys["tokenizer.ggml.token_type"] = std::vector<int64_t>(file.tokens.size(), 0); // undefined
    const Tokenizer undefined(open_keys(keys));
    CHECK(undefined.is_control(*undefined.special("<|im_start|>")));
    CHECK(undefined.encode("a<|im_end|><think>").size() == 3);
    CHECK(undefined.encode("aab") == untyped.encode("aab"));
}

TEST_CASE("Llama 3: its regular expression, whole words, and a BOS token before texts") {
    const VocabularyFile file = small_llama3();
    const Tokenizer tokenizer = tokenizer_with(file, llama3);
    const auto id = [&](const std::string& token) { return id_of(file, token); };
    CHECK(tokenizer.encode("1234123") == Ids{id("123"), id("4"), id("12"), id("3")}); // 123, 412, 3 and then its merges
    CHECK(tokenizer.encode("\u0661\u0662\u0663\u0664").size() == 8);
    CHECK(tokenizer.encode("abcd") == Ids{id("abcd")});
    CHECK(tokenizer.encode("abcdab") == Ids{id("ab"), id("cd"), id("ab")});
    CHECK(tokenizer.encode("e\u0301").size() == 3); // not normalised
    const uint32_t bos = id("<|begin_of_text|>");
    CHECK(tokenizer.prompt("ab") == Ids{bos, id("ab")});
    CHECK(tokenizer.prompt("<|begin_of_text|>ab") == Ids{bos, id("ab")});
    CHECK(tokenizer.prompt("") == Ids{bos});
    CHECK(tokenizer.encode("ab") == Ids{id("ab")});
    for (const char* end : {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"}) CHECK(tokenizer.is_end_of_generation(id(end)));
    CHECK(!tokenizer.is_end_of_generation(id("<|python_tag|>")));
    CHECK(tokenizer.is_control(id("<|python_tag|>")));
    for (const char* alias : {"llama3", "llama-v3", "falcon3", "pixtral", "lfm2"}) {
        const Tokenizer same = tokenizer_with(file, {{"tokenizer.ggml.pre", std::string_view(alias)}});
        CHECK(same.prompt("abcd 1234") == tokenizer.prompt("abcd 1234"));
    }
    const Tokenizer merged = tokenizer_with(file, {{"tokenizer.ggml.pre", std::string_view("smaug-bpe")}});
    CHECK(merged.prompt("abcd 123") == Ids{id("ab"), id("cd"), id(VocabularyFile::letter(' ')), id("123")});
}

TEST_CASE("a BOS token: by the file's keys") {
    const VocabularyFile file = small_llama3();
    const uint32_t ab = id_of(file, "ab"), other = id_of(file, "<|end_of_text|>");
    const auto prompt = [&](Keys keys, const char* pre) {
        keys["tokenizer.ggml.pre"] = std::string_view(pre);
        return tokenizer_with(file, keys).prompt("ab");
    };
    const Keys off{{"tokenizer.ggml.add_bos_token", false}},
        on{{"tokenizer.ggml.add_bos_token", true}, {"tokenizer.ggml.bos_token_id", uint64_t(other)}};
    CHECK(prompt(off, "llama-bpe") == Ids{ab});
    CHECK(prompt(on, "llama-bpe") == Ids{other, ab});
    CHECK(prompt(on, "qwen2") == Ids{other, ab});
    CHECK(prompt({}, "qwen2") == Ids{ab});
    CHECK(contains(
        error_of([&] {
            tokenizer_with(file, {{"tokenizer.ggml.add_bos_token", true}, {"tokenizer.ggml.bos_token_id", uint64_t(999)}});
        }),
        "bos_token_id is 999"));
    CHECK(contains(error_of([&] {
                       tokenizer_with(small_vocabulary(), {{"tokenizer.ggml.add_bos_token", true}});
                   }),
                   "bos_token_id is missing, and texts begin with it"));
}

TEST_CASE("names of pre-tokenizers that split as another does") {
    const VocabularyFile file = small_vocabulary();
    const std::string text = "don't User aaaa 2024\n\n e\u0301!";
    const auto ids = [&](const char* pre) {
        return tokenizer_with(file, {{"tokenizer.ggml.pre", std::string_view(pre)}}).encode(text);
    };
    for (const char* alias : {"deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"}) CHECK(ids(alias) == ids("qwen2"));
    for (const char* alias : {"codeshell", "command-r", "exaone", "minerva-7b", "refact"}) CHECK(ids(alias) == ids("smollm"));
    CHECK(ids("smollm") != ids("qwen2"));
}

TEST_CASE("a file without a tokenizer, or without its kind, runs on ids") {
    const VocabularyFile file = small_vocabulary();
    const std::string why = "so that this model runs on token ids (bench), and not on text";
    for (const char* key : {"pre", "model"}) {
        Keys keys = file.keys();
        keys.erase(std::string("tokenizer.ggml.") + key);
        const Tokenizer tokenizer = Tokenizer::of_any_kind(open_keys(keys));
        CHECK(tokenizer.size() == 271);
        const std::string error = error_of([&] { tokenizer.encode("a"); });
        CHECK(contains(error, std::string("tokenizer.ggml.") + key));
        CHECK(contains(error, why));
    }
    const Tokenizer none = Tokenizer::of_any_kind(open_keys({{"general.name", std::string_view("x")}}));
    CHECK(none.size() == 0);
    CHECK(contains(error_of([&] { none.require_text(); }), why));
}

TEST_CASE("markup that names a token which the vocabulary lacks is refused, as a chat would be spelled out in pieces") {
    const VocabularyFile file = small_llama3();
    const Tokenizer tokenizer = tokenizer_with(file, llama3);
    const std::vector<Piece> chat{{"<|im_start|>user\n", true}, {"<|im_end|>", false}};
    CHECK(contains(error_of([&] { tokenizer.encode(chat); }), "the model's vocabulary has no token <|im_start|>"));
    CHECK(!tokenizer.encode(std::vector<Piece>{{"<|im_start|>", false}, {"<|eot_id|>", true}}).empty());
    CHECK(!tokenizer.prompt("<|im_start|>").empty()); // a user's own text
}
