// POST /v1/completions, as clients see it. The scripted model continues any text with the same words.
#include "tests/tools/server/refused.h"
#include "tests/tools/server/scripted_server.h"

using namespace tq;
using namespace tq::server;

namespace {

std::string text(const Json& answer, size_t choice) { return answer.at("choices").at(choice).at("text"); }

} // namespace

TEST_CASE("a text, ids, and lists of both are continued") {
    ScriptedServer server("one two");
    const Json ids = server.model.tokenizer.encode("Count");
    const std::vector<std::pair<Json, size_t>> prompts = {
        {"Count", 1}, {Json::array({"Count", "Count", "Count"}), 3}, {ids, 1}, {Json::array({ids, ids}), 2}};
    for (const auto& [prompt, choices] : prompts) {
        const Json answer = server.answer(completions, {{"prompt", prompt}});
        CHECK(answer["object"] == "text_completion");
        REQUIRE(answer["choices"].size() == choices);
        for (size_t i = 0; i < choices; ++i) {
            CHECK(answer["choices"][i]["index"] == i);
            CHECK(text(answer, i) == "one two");
            CHECK(answer["choices"][i]["finish_reason"] == "stop");
            CHECK(answer["choices"][i]["logprobs"].is_null());
        }
        CHECK(answer["usage"]["prompt_tokens"] == choices * ids.size());
    }
}

TEST_CASE("n choices of several prompts are numbered through, and echo repeats the prompt") {
    ScriptedServer server("one two");
    const Json body = {{"prompt", Json::array({"A", "B"})}, {"n", 2}, {"best_of", 2}, {"echo", true}};
    const Json answer = server.answer(completions, body);
    REQUIRE(answer["choices"].size() == 4);
    const char* expected[] = {"Aone two", "Aone two", "Bone two", "Bone two"};
    for (size_t i = 0; i < 4; ++i) {
        CHECK(answer["choices"][i]["index"] == i);
        CHECK(text(answer, i) == expected[i]);
    }
    Json streaming = body;
    streaming["stream"] = true;
    std::vector<std::string> texts(4);
    std::vector<int> ends(4);
    for (const Json& event : data_events(server.stream(completions, streaming))) {
        const Json choice = event["choices"][0];
        CHECK(ends.at(choice["index"]) == 0);
        texts[choice["index"]] += choice["text"];
        ends[choice["index"]] += !choice["finish_reason"].is_null();
    }
    for (size_t i = 0; i < 4; ++i) CHECK(texts[i] == expected[i]);
    CHECK(ends == std::vector<int>(4, 1));
}

TEST_CASE("16 tokens are the default, and 0 only echo") {
    std::string long_text;
    for (int i = 0; i < 100; ++i) long_text += " a";
    ScriptedServer server(long_text);
    const Json answer = server.answer(completions, {{"prompt", "A"}});
    CHECK(answer["usage"]["completion_tokens"] == 16);
    CHECK(answer["choices"][0]["finish_reason"] == "length");
    CHECK(text(server.answer(completions, {{"prompt", "A"}, {"max_tokens", 0}, {"echo", true}}), 0) == "A");
    CHECK(server.answer(completions, {{"prompt", "A"}, {"max_tokens", -1}})["usage"]["completion_tokens"] > 16);
}

TEST_CASE("logprobs have the offset of each token") {
    ScriptedServer server("caf\xC3\xA9 two");
    const Json body = {{"prompt", "A"}, {"logprobs", 2}};
    const Json logprobs = server.answer(completions, body)["choices"][0]["logprobs"];
    std::string joined;
    size_t characters = 0;
    for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
        const std::string token = logprobs["tokens"][i];
        CHECK(logprobs["text_offset"][i] == characters);
        CHECK(logprobs["top_logprobs"][i].size() == 2);
        CHECK(logprobs["token_logprobs"][i].get<double>() <= 0);
        joined += token;
        for (const char c : token) characters += (uint8_t(c) & 0xC0) != 0x80;
    }
    CHECK(joined == "caf\xC3\xA9 two");
}

TEST_CASE("a stop string ends a text; usage comes where it was asked for") {
    ScriptedServer server("one\n\ntwo");
    CHECK(text(server.answer(completions, {{"prompt", "A"}, {"stop", "\n\n"}}), 0) == "one");
    const Json body = {{"prompt", "A"}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    const auto events = data_events(server.stream(completions, body));
    CHECK(events.back()["choices"] == Json::array());
    CHECK(events.back()["usage"]["prompt_tokens"] == 1);
}

TEST_CASE("wrong completions are refused with the name of the field") {
    ScriptedServer server("yes");
    const std::vector<std::pair<const char*, const char*>> wrong = {
        {"prompt", "{}"},
        {"prompt", R"({"prompt": ""})"},
        {"prompt", R"({"prompt": []})"},
        {"prompt", R"({"prompt": {}})"},
        {"prompt", R"({"prompt": 5})"},
        {"prompt", R"({"prompt": [1.5]})"},
        {"prompt", R"({"prompt": [-1]})"},
        {"prompt", R"({"prompt": [151936]})"},
        {"prompt", R"({"prompt": [1, "a"]})"},
        {"prompt[1]", R"({"prompt": ["a", 1]})"},
        {"prompt[1]", R"({"prompt": ["a", ""]})"},
        {"prompt[0]", R"({"prompt": [[]]})"},
        {"prompt[0]", R"({"prompt": [[[1]]]})"},
        {"prompt[0]", R"({"prompt": [{}]})"},
        {"suffix", R"({"prompt": "a", "suffix": "b"})"},
        {"best_of", R"({"prompt": "a", "best_of": 2})"},
        {"logprobs", R"({"prompt": "a", "logprobs": true})"},
        {"logprobs", R"({"prompt": "a", "logprobs": 1, "echo": true})"},
        {"echo", R"({"prompt": "a", "echo": 1})"}};
    for (const auto& [field, body] : wrong) {
        CAPTURE(body);
        CHECK(refused_field([&] { server.post(completions, body); }) == field);
    }
    CHECK(text(server.answer(completions, {{"prompt", "A"}}), 0) == "yes");
}
