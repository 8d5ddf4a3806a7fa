// Haystacks: facts at the requested depths, and the requested number of tokens; prompts and recall on the demo model.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "tests/support/golden.h"
#include "tests/support/text.h"
#include "tools/check/quality/needle.h"
#include <nlohmann/json.hpp>
#include <set>

using namespace tq;
using tq::test::contains;
using namespace tq::quality;

namespace {

uint32_t words(std::string_view text) { // counts words as tokens
    uint32_t count = 0;
    for (size_t i = 0; i < text.size(); i++) count += text[i] != ' ' && (i == 0 || text[i - 1] == ' ');
    return count;
}

const std::vector<double> depths{0, 0.3, 1};

Haystack words_of(uint64_t seed, HaystackOptions options, std::span<const std::string> sentences = {}) {
    Random random(seed);
    return make_haystack(options, sentences, random, words);
}

template <class F> std::string error_of(F f) {
    try {
        f();
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

Model demo() { return load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf"); }

} // namespace

TEST_CASE("facts stand once in a text, at their depths, with keys of their own") {
    for (uint64_t seed = 0; seed < 20; seed++) {
        const HaystackOptions options{.tokens = 3000, .depths = depths, .keys = 2, .digits = 5, .distractors = 40};
        const Haystack haystack = words_of(seed, options);
        REQUIRE(haystack.needles.size() == 6);
        CHECK(words(haystack.text) <= 3000);
        CHECK(words(haystack.text) > 2900);
        std::set<std::string> keys;
        for (const Needle& needle : haystack.needles) {
            const std::string told = tell(needle.fact);
            const size_t at = haystack.text.find(told);
            REQUIRE(at != std::string::npos);
            CHECK(haystack.text.find(needle.fact.key, at + told.size()) == std::string::npos);
            CHECK(haystack.text.find(needle.fact.key) > at);
            CHECK(needle.fact.value.size() == 5);
            CHECK(needle.fact.value[0] != '0');
            keys.insert(needle.fact.key);
            // Distractors, which are anywhere, move it by some percent.
            CHECK(double(at) / double(haystack.text.size()) == doctest::Approx(depths[needle.depth]).epsilon(0.06).scale(1));
        }
        CHECK(keys.size() == 6);
        size_t told = 0;
        for (size_t at = 0; (at = haystack.text.find("The code of the ", at)) != std::string::npos; at++) told++;
        CHECK(told == 46);
        CHECK(words_of(seed, options).text == haystack.text);
        CHECK(words_of(seed + 1, options).text != haystack.text);
    }
}

TEST_CASE("distractors have half of a key and the first digit of what is asked for") {
    const Haystack haystack = words_of(3, {.tokens = 400, .depths = {0.5}, .keys = 1, .digits = 4, .distractors = 12});
    const Fact& fact = haystack.needles[0].fact;
    const size_t space = fact.key.find(' ');
    size_t near_ones = 0;
    for (size_t at = 0; (at = haystack.text.find("The code of the ", at)) != std::string::npos; at++) {
        const std::string key = haystack.text.substr(at + 16, haystack.text.find(" is ", at) - at - 16),
                          value = haystack.text.substr(haystack.text.find(" is ", at) + 4, 4);
        if (key == fact.key) continue;
        const bool adjective = key.substr(0, key.find(' ')) == fact.key.substr(0, space),
                   thing = key.substr(key.find(' ')) == fact.key.substr(space);
        CHECK(adjective != thing);
        CHECK(value[0] == fact.value[0]);
        CHECK(value != fact.value);
        near_ones++;
    }
    CHECK(near_ones == 12);
}

TEST_CASE("what a haystack cannot hold is said") {
    CHECK(contains(error_of([] { words_of(1, {.tokens = 100, .depths = depths, .distractors = 10}); }), "16 facts take 128"));
    CHECK(contains(error_of([] { words_of(1, {.tokens = 1 << 20, .depths = depths, .distractors = 895}); }),
                   "more than the 900 that"));
    // All possible keys, and values of one digit, which cannot all be different.
    const Haystack all = words_of(1, {.tokens = 20000, .depths = depths, .keys = 4, .digits = 1, .distractors = 888});
    CHECK(all.needles.size() == 12);
}

TEST_CASE("the sentences of a text are the filler") {
    const std::string text =
        "  One is here.\nTwo 3.5 is there! Is three?  \r\n\n" + std::string(900, 'x') + " end. \xc3\xa9t\xc3\xa9";
    const std::vector<std::string> sentences = split_sentences(text);
    REQUIRE(sentences.size() == 7);
    CHECK(sentences[0] == "One is here.");
    CHECK(sentences[1] == "Two 3.5 is there!");
    CHECK(sentences[2] == "Is three?");
    CHECK(sentences[3] + sentences[4] + sentences[5] == std::string(900, 'x') + " end.");
    CHECK(sentences[6] == "\xc3\xa9t\xc3\xa9");
    CHECK(split_sentences(" \n ").empty());
    std::string accents = "a";
    for (int i = 0; i < 1000; i++) accents += "\xc3\xa9";
    for (const std::string& part : split_sentences(accents)) CHECK((uint8_t(part[0]) & 0xc0) != 0x80); // whole characters

    const std::vector<std::string> few{"Alpha one.", "Beta two."};
    const Haystack haystack = words_of(1, {.tokens = 60, .depths = {0.5}, .keys = 1, .digits = 4, .distractors = 0}, few);
    CHECK(contains(haystack.text, "Alpha one. Beta two. "));
    CHECK_FALSE(contains(haystack.text, "walked"));
}

TEST_CASE("prompts are the chat's, and as long as was asked for") {
    const Model model = demo();
    for (const uint32_t length : {256u, 700u}) {
        const Haystack haystack = make_haystack(model, {.depths = depths, .keys = 1, .distractors = 3}, length, {}, Random(1));
        size_t max = 0;
        for (const Needle& needle : haystack.needles) {
            const std::vector<uint32_t> ids = needle_prompt(model, haystack.text, needle.fact);
            const std::string prompt = model.tokenizer.decode(ids, false);
            CHECK(prompt.starts_with("<|im_start|>user\n"));
            CHECK(prompt.ends_with(ask(needle.fact) + "<|im_end|>\n<|im_start|>assistant\n" + begin_answer(needle.fact)));
            // The following text is tokenized as if it were part of the text: the digits one by one.
            auto whole = ids;
            for (const uint32_t id : model.tokenizer.encode(needle.fact.value)) whole.push_back(id);
            CHECK(whole.size() == ids.size() + 4);
            max = std::max(max, whole.size());
        }
        CHECK(max <= length);
        CHECK(max + 16 > length);
    }
    for (uint64_t seed = 0; seed < 30; seed++) // each of them can be cut to length
        CHECK(make_haystack(model, {.depths = depths, .keys = 1, .distractors = 2}, 160, {}, Random(seed)).needles.size() == 3);
    CHECK(contains(error_of([&] { make_haystack(model, {.depths = depths}, 64, {}, Random(1)); }), "choose longer texts"));
}

TEST_CASE("recall is that of tokens which are run one by one") {
    const Model model = demo();
    const auto forward = make_cpu_forward(model.config, model.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 512});
    const auto plain = make_cpu_forward(model.config, model.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 512});
    const Haystack haystack = make_haystack(model, {.depths = {0.2, 0.8}, .keys = 2, .distractors = 4}, 300, {}, Random(5));
    Session session(*forward);
    int known = 0;
    for (const Needle& needle : haystack.needles) {
        const auto prompt = needle_prompt(model, haystack.text, needle.fact);
        for (const std::string& value : {needle.fact.value, std::string("1357")}) {
            const auto got = recall(session, model, prompt, value);
            REQUIRE(got);
            double log_p = 0;
            bool exact = true;
            plain->truncate(0);
            std::vector<uint32_t> next = prompt, said;
            for (const uint32_t id : model.tokenizer.encode(value)) {
                const auto logits = plain->run(next);
                double sum = 0;
                for (const float l : logits) sum += std::exp(double(l));
                log_p += logits[id] - std::log(sum);
                exact = exact && greedy(model.tokenizer, logits) == id;
                next = {id};
            }
            plain->truncate(0);
            for (next = prompt; said.size() < 4; next = {said.back()}) said.push_back(greedy(model.tokenizer, plain->run(next)));
            CHECK(got->log_p == doctest::Approx(log_p).epsilon(1e-3));
            CHECK(got->exact == exact); // the demo ends its numbers
            CHECK(got->said.starts_with(model.tokenizer.decode(said)));
            if (value == "1357") CHECK_FALSE(got->exact);
            known += got->exact;
        }
    }
    CHECK(known >= 1);
    CHECK(session.timings().reused_tokens > 200); // the text was run once
    const std::string longer = haystack.text + haystack.text;
    CHECK(contains(error_of([&] { recall(session, model, needle_prompt(model, longer, haystack.needles[0].fact), "1234"); }),
                   "-c"));
    CHECK_FALSE(recall(session, model, needle_prompt(model, "Hello.", haystack.needles[0].fact), "1234",
                       [](uint32_t, uint32_t) { return false; }));
}

TEST_CASE("means over facts, and a log that says the same") {
    std::vector<Found> found;
    for (int i = 0; i < 10; i++) found.push_back({size_t(i % 2), {i < 7, -1.0 * i, "12"}, Recall{i < 9, -0.5 * i, "34"}});
    const NeedleSummary s = summarise(found);
    CHECK(s.facts == 10);
    CHECK(s.exact == 7);
    CHECK(s.reference_exact == 9);
    CHECK(s.exact_share.value == doctest::Approx(0.7));
    CHECK(s.exact_share.error == doctest::Approx(std::sqrt(0.7 * 0.3 / 9)));
    CHECK(s.log_p.value == doctest::Approx(-4.5));
    CHECK(s.log_p_change.value == doctest::Approx(-2.25));
    CHECK(s.log_p_change.error == doctest::Approx(0.5 * s.log_p.error));
    CHECK(summarise(std::span<const Found>()).facts == 0);
    for (const Found& f : found) {
        const Found same = found_from_json(nlohmann::json::parse(to_json({{"old key", "12"}, f.depth}, f).dump()));
        CHECK(same.depth == f.depth);
        CHECK(same.measured.log_p == f.measured.log_p);
        CHECK(same.measured.exact == f.measured.exact);
        CHECK(same.reference->said == "34");
    }
    CHECK(contains(error_of([] { found_from_json({{"depth", 1}, {"exact", 1}}); }), "damaged"));
    CHECK(contains(error_of([] { found_from_json(nlohmann::json::array()); }), "damaged"));
}
