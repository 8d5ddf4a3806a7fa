// The mask over a vocabulary against the plain definition, token by token; special tokens, ends, rewinding, and a grammar as a
// sampler's constraint.
#include "base/error.h"
#include "model/engine/sampling/sampler.h"
#include "model/text/grammar/constraint.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/json_schema.h"
#include "model/text/tokenizer.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <random>

using namespace tq;
using namespace tq::grammar;
using namespace tq::test;

namespace {

struct Texts {
    Tokenizer tokenizer;
    std::shared_ptr<const TokenTrie> tokens;

    explicit Texts(const VocabularyFile& file) : tokenizer(file.open()), tokens(std::make_shared<TokenTrie>(tokenizer)) {}
    uint32_t id(std::string_view text) const {
        const auto ids = tokenizer.encode(text);
        REQUIRE(ids.size() == 1);
        return ids[0];
    }
};

std::shared_ptr<const Grammar> compile(const std::string& gbnf) { return std::make_shared<Grammar>(parse_gbnf(gbnf)); }

// Pieces of JSON as tokens, also with parts of characters: each merge is only of tokens that are there.
VocabularyFile json_vocabulary() {
    VocabularyFile file;
    const auto merge = [&](std::initializer_list<std::string_view> parts) {
        std::string text;
        for (const std::string_view part : parts) {
            if (!text.empty()) file.merge(text, part);
            text += part;
        }
    };
    merge({"{", "\""});
    merge({"\"", ":", " ", "\""});
    merge({"\"", ",", " ", "\"", "a", "\""});
    merge({"\"", "}"});
    merge({"\"", "]", "}", "\n", "\n"});
    merge({"}", "}", "}", "}"});
    merge({"[", "[", "[", "1"});
    merge({"a", "b", "c", "\"", "]"});
    merge({" ", " ", " ", " "});
    merge({"\n", " ", " "});
    merge({"t", "r", "u", "e", ",", " ", "f"});
    merge({"1", ".", "5", "e", "+", "0"});
    merge({"\\", "u", "0", "0"});
    merge({"\\", "\""});
    merge({"\xE2", "\x82"});
    merge({"a", "\xC3"});
    merge({"\xA9", "b"});
    merge({"x", "x", "x", "x"});
    merge({"xxxx", "xxxx", "xxxx", "xxxx", "x", "\"", "}"}); // longer than what is tried once for all places of a repetition
    for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) file.add(control, 3);
    for (const char* tag : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) file.add(tag, 4);
    file.add("[PAD]", 5);
    return file;
}

// Checks mask(): each token is tried on its own.
void check_mask(Matcher& matcher, const Texts& texts) {
    const auto span = matcher.mask();
    const std::vector<uint64_t> mask(span.begin(), span.end());
    for (uint32_t id = 0; id < texts.tokenizer.size(); ++id) {
        const size_t before = matcher.accepted();
        const bool accepted = matcher.accept(id);
        matcher.rewind(before);
        CAPTURE(id);
        CHECK(accepted == bool(mask[id / 64] >> id % 64 & 1));
    }
}

// Samples a text at random, with every mask checked.
std::string check_walk(const Texts& texts, const std::string& gbnf, uint32_t seed, size_t max) {
    Matcher matcher(compile(gbnf), texts.tokens);
    std::mt19937 random(seed);
    std::string text;
    while (matcher.accepted() < max) {
        check_mask(matcher, texts);
        const auto mask = matcher.mask();
        std::vector<uint32_t> ids;
        for (uint32_t id = 0; id < texts.tokenizer.size(); ++id)
            if (mask[id / 64] >> id % 64 & 1) ids.push_back(id);
        REQUIRE(!ids.empty());
        const uint32_t id = ids[random() % ids.size()];
        REQUIRE(matcher.accept(id));
        if (texts.tokenizer.is_end_of_generation(id)) break;
        text += texts.tokenizer.bytes(id);
    }
    return text;
}

std::vector<uint32_t> allowed(Matcher& matcher) {
    std::vector<uint32_t> ids;
    const auto mask = matcher.mask();
    for (uint32_t id = 0; id < mask.size() * 64; ++id)
        if (mask[id / 64] >> id % 64 & 1) ids.push_back(id);
    return ids;
}

} // namespace

TEST_CASE("the mask is what every token says when it is tried") {
    const Texts texts(json_vocabulary());
    const std::string schema = json_schema_gbnf(std::string_view(
        R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "array", "items": {"$ref": "#"}},
            "c": {"type": "number"}}, "required": ["a"]})"));
    for (uint32_t seed = 1; seed <= 6; ++seed) {
        check_walk(texts, json_object_gbnf(), seed, 12);
        check_walk(texts, schema, seed, 12);
        check_walk(texts, "root ::= ([a-c\u00E9\u20AC] | x){2,5} \"!\"\nx ::= \"(\" root \")\" | \"\\n\" \" \"*", seed, 10);
        check_walk(texts, "root ::= item (\",\" \" \"? item)*\nitem ::= \"a\" | \"ab\" | \"abc\" | w \"]\"\nw ::= [a-z\"]+", seed,
                   10);
    }
}

TEST_CASE("the mask at every place of a long repetition") {
    const Texts texts(json_vocabulary());
    for (const char* bounds : {R"("maxLength": 45)", R"("minLength": 40, "maxLength": 41)", R"("minLength": 21)"}) {
        const std::string schema = json_schema_gbnf(
            std::string_view(fmt::format(R"({{"type": "object", "properties": {{"a": {{"type": "string", {}}}}}}})", bounds)));
        Matcher matcher(compile(schema), texts.tokens);
        REQUIRE(matcher.accept_text("{\"a\": \""));
        do check_mask(matcher, texts);
        while (matcher.accepted() < 60 && matcher.accept_text("x"));
    }
    for (uint32_t seed = 1; seed <= 4; ++seed)
        check_walk(texts, "root ::= (\"a\" | w \"b\"){20,30} \"}\"\nw ::= (\"x\"{1,19} \"y\"?){0,25} | \"\"", seed, 20);
}

TEST_CASE("a generation ends where the grammar may end, and only there") {
    const Texts texts(small_vocabulary());
    const uint32_t end = *texts.tokenizer.special("<|im_end|>"), other_end = *texts.tokenizer.special("<|endoftext|>");
    Matcher matcher(compile("root ::= \"us\" \"er\"?"), texts.tokens);
    CHECK(!matcher.accept(end));
    CHECK(matcher.accept(texts.id("us")));
    CHECK((matcher.can_end() && !matcher.is_complete()));
    CHECK(allowed(matcher) == std::vector<uint32_t>{texts.id("e"), texts.id("er"), other_end, end}); // ids in ascending order
    CHECK(matcher.accept(texts.id("er")));
    CHECK(matcher.is_complete());
    CHECK(allowed(matcher) == std::vector<uint32_t>{other_end, end});
    CHECK(!matcher.accept(texts.id("us")));
    CHECK(matcher.accept(end));
    matcher.rewind(1);
    CHECK(!matcher.is_complete());
    CHECK(matcher.accept(texts.id("e")));
    CHECK(!matcher.can_end());
    matcher.restart();
    CHECK((matcher.accepted() == 0 && matcher.accept(texts.id("user"))));
}

TEST_CASE("no text stands for a special token, and no special token for a text") {
    const Texts texts(small_vocabulary());
    const uint32_t call = *texts.tokenizer.special("<tool_call>");
    Matcher text(compile("root ::= \"<tool_call>\" .*"), texts.tokens);
    CHECK(!text.accept(call));
    CHECK(text.accept_text("<tool_call>"));
    for (const uint32_t id : allowed(text)) {
        CHECK((!texts.tokenizer.special(texts.tokenizer.bytes(id)) || texts.tokenizer.is_end_of_generation(id)));
        CHECK(!texts.tokenizer.is_unused(id));
    }
    Matcher token(compile("root ::= <tool_call> \"a\""), texts.tokens);
    CHECK(allowed(token) == std::vector<uint32_t>{call});
    CHECK(!token.accept(texts.id("<")));
    CHECK(token.accept(call));
    CHECK(token.accept(texts.id("a")));
    CHECK_THROWS_WITH_AS(Matcher(compile("root ::= <nothing>"), texts.tokens),
                         "the grammar names the token <nothing>, which is no special token of this model", Error);
}

TEST_CASE("memory stays bounded over a long text, and what is kept still matches") {
    const Texts texts(json_vocabulary());
    Matcher matcher(compile(json_object_gbnf()), texts.tokens);
    REQUIRE(matcher.accept_text("{\"a\": "));
    for (int i = 0; i < 60000; ++i) REQUIRE(matcher.accept_text(i % 3 == 2 ? "{\"b\": " : "["));
    check_mask(matcher, texts);
    for (int i = 60000; i-- > 0;) REQUIRE(matcher.accept_text(i == 59999 ? "1}" : i % 3 == 2 ? "}" : "]"));
    REQUIRE(matcher.accept_text("}"));
    CHECK(matcher.is_complete());
    matcher.rewind(matcher.accepted() - Matcher::max_rewind);
    CHECK(!matcher.can_end());
}

TEST_CASE("a sampler samples what the grammar allows, greedily and at random") {
    const Texts texts(small_vocabulary());
    const uint32_t size = texts.tokenizer.size() + 8; // rows of the embedding beyond the vocabulary
    for (const float temperature : {0.0f, 1.0f}) {
        SamplerOptions options{.temperature = temperature, .top_k = 0, .top_p = 1, .seed = 7};
        Sampler sampler(options);
        GrammarConstraint constraint(compile("root ::= (\"us\" | \"a\"){3,6} \"er\""), texts.tokens, texts.tokenizer);
        sampler.constrain(&constraint);
        CHECK(!sampler.fits_device());
        std::mt19937 random(3);
        std::string text;
        for (int i = 0; i < 20; ++i) {
            std::vector<float> logits(size);
            for (float& x : logits) x = float(random() % 1000) / 100;
            const uint32_t id = sampler.sample(logits);
            if (texts.tokenizer.is_end_of_generation(id)) break;
            text += texts.tokenizer.bytes(id);
        }
        CHECK(text.ends_with("er"));
        CHECK(constraint.can_end());
    }
    Sampler sampler({.temperature = 0});
    GrammarConstraint constraint(compile("root ::= \"\\U0001F600\""), texts.tokens, texts.tokenizer);
    sampler.constrain(&constraint);
    std::vector<float> flat(size);
    CHECK(texts.tokenizer.bytes(sampler.sample(flat)) == "\xF0");
    CHECK_THROWS_AS(constraint.accept(texts.id("a")), Error);
}

TEST_CASE("the grammar begins after the thinking") {
    const Texts texts(small_vocabulary());
    const Tokenizer& t = texts.tokenizer;
    const uint32_t think = *t.special("<think>"), end_think = *t.special("</think>"), end = *t.special("<|im_end|>"),
                   a = texts.id("a"), b = texts.id("b"), newline = texts.id("\n"), newlines = texts.id("\n\n");
    const auto open = [&](GrammarConstraint& constraint) {
        std::vector<float> logits(t.size());
        constraint.apply(logits);
        std::vector<uint32_t> ids;
        for (uint32_t id = 0; id < t.size(); ++id)
            if (logits[id] == 0) ids.push_back(id);
        return ids;
    };
    const auto has = [](const std::vector<uint32_t>& ids, uint32_t id) { return std::ranges::find(ids, id) != ids.end(); };
    GrammarConstraint choice(compile("root ::= \"a\""), texts.tokens, t, GrammarStart::before_thinking);
    CHECK(open(choice) == std::vector<uint32_t>{a, think});
    choice.accept(a);
    CHECK((choice.can_end() && !has(open(choice), think)));
    choice.restart();
    choice.accept(think);
    CHECK((has(open(choice), b) && !has(open(choice), end) && has(open(choice), end_think)));
    choice.accept(b);
    choice.accept(end_think);
    CHECK(open(choice) == std::vector<uint32_t>{a, newline, newlines});
    choice.accept(newline);
    CHECK(open(choice) == std::vector<uint32_t>{a, newline});
    choice.accept(a);
    CHECK(choice.can_end());
    choice.rewind(2);
    choice.accept(b);
    choice.accept(end_think);
    choice.accept(newlines);
    CHECK(open(choice) == std::vector<uint32_t>{a});

    GrammarConstraint inside(compile("root ::= \"a\""), texts.tokens, t, GrammarStart::in_thinking);
    CHECK((has(open(inside), b) && !has(open(inside), end)));
    GrammarConstraint lazy(compile("root ::= <tool_call> \"a\" </tool_call>"), texts.tokens, t, GrammarStart::at_tool_call);
    CHECK(open(lazy).size() == t.size());
    lazy.accept(b);
    lazy.accept(*t.special("<tool_call>"));
    CHECK(open(lazy) == std::vector<uint32_t>{a});
}

TEST_CASE("the longest tokens are as deep in a trie as they are long, and longer ones are refused") {
    for (const auto& [type, longest] : {std::pair(1, 65534), {3, 4096}, {4, 4096}}) { // normal, control, user-defined
        CAPTURE(type);
        VocabularyFile file;
        const uint32_t id = file.add(std::string(size_t(longest), 'x'), type);
        const Texts texts(file);
        const size_t in_trie = size_t(longest) + (type == 3 ? 2 : 0);
        CHECK(texts.tokens->bytes(id).size() == in_trie);
        CHECK(std::ranges::max(texts.tokens->nodes(), {}, &TokenTrie::Node::depth).depth == in_trie);
        file.tokens.back() += 'x';
        std::string error;
        try {
            Texts{file};
        } catch (const Error& refused) {
            error = refused.what();
        }
        CHECK(contains(error, fmt::format("token 256 has {} bytes", longest + 1)));
    }
}
