// POST /v1/completions, as clients see it. The scripted model continues any text with the same words.
#include "model/files/formats/gguf_writer.h"
#include "tests/support/random_model.h"
#include "tests/support/served_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/vocabulary_file.h"
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

TEST_CASE("timings are the sums of all prompts and choices") {
    ScriptedServer server("one two");
    const auto ask = [&](const Json& prompt, uint32_t n) { return server.answer(completions, {{"prompt", prompt}, {"n", n}}); };
    const Json one = ask("Count", 1), several = ask({"A and so on", "B it is", "Count"}, 2);
    CHECK(one["timings"]["predicted_n"] == one["usage"]["completion_tokens"]);
    for (const Json& answer : {one, several}) {
        const Json &usage = answer["usage"], &timings = answer["timings"];
        CHECK(timings["prompt_n"].get<uint32_t>() + timings["cache_n"].get<uint32_t>() == usage["prompt_tokens"]);
        CHECK(timings["predicted_n"] == usage["completion_tokens"]);
        CHECK(timings["prompt_ms"] > 0);
        CHECK(timings["predicted_ms"] > 0);
    }
}

TEST_CASE("an echoed prompt has the logprobs that its tokens get as an answer") {
    ScriptedServer server("one two three");
    const auto logprobs = [&](const Json& prompt, const Json& more = Json::object()) {
        Json body = {{"prompt", prompt}, {"logprobs", 2}};
        body.update(more);
        return server.answer(completions, body)["choices"];
    };
    const Json answered = logprobs("Count", {{"echo", true}})[0];
    Json known = answered["logprobs"];
    const std::string all = "Countone two three";
    CHECK(answered["text"] == all);
    CHECK(known["tokens"].back() == "<|im_end|>"); // the token that ended the answer was generated, too
    CHECK(known["text_offset"].back() == all.size());
    for (Json& list : known) list.erase(list.size() - 1);
    const size_t tokens = known["tokens"].size(), prompt = server.model.tokenizer.encode("Count").size();
    REQUIRE(tokens > prompt);
    CHECK(known["token_logprobs"][0].is_null());
    CHECK(known["top_logprobs"][0].is_null());
    CHECK(known["text_offset"][0] == 0);
    for (const char* name : {"token_logprobs", "top_logprobs", "text_offset"}) CHECK(known[name].size() == tokens);
    std::string said;
    for (const Json& token : known["tokens"]) said += token.get<std::string>();
    CHECK(said == all);

    const Json ids = server.model.tokenizer.encode(all);
    REQUIRE(ids.size() == tokens);
    const Json scored = {{"echo", true}, {"max_tokens", 0}};
    for (int times = 0; times < 2; ++times) { // also if the cache has the prompt
        CHECK(logprobs(all, scored)[0]["logprobs"] == known);
        CHECK(logprobs(ids, scored)[0]["logprobs"] == known);
        const Json several = logprobs(Json::array({all, "x", all}), scored);
        CHECK(several[0]["logprobs"] == known);
        CHECK(several[1]["logprobs"]["tokens"] == Json::array({"x"}));
        CHECK(several[2]["logprobs"] == known);
    }
    Json streamed = {{"prompt", all}, {"logprobs", 2}, {"echo", true}, {"max_tokens", 0}, {"stream", true}};
    CHECK(data_events(server.stream(completions, streamed))[0]["choices"][0]["logprobs"] == known);
    const Json one = logprobs(all, {{"echo", true}, {"max_tokens", 1}})[0]["logprobs"]; // as scoring tools ask
    CHECK(one["tokens"].size() == tokens + 1);
    CHECK(one["token_logprobs"][tokens - 1] == known["token_logprobs"][tokens - 1]);
}

TEST_CASE("the tokens for the middle of a text are those of the file's keys, whatever their names") {
    test::VocabularyFile tokens = test::small_vocabulary();
    auto keys = tokens.keys();
    for (const char* name : {"pre", "suf", "mid"})
        keys[fmt::format("tokenizer.ggml.fim_{}_token_id", name)] = uint64_t(tokens.add(fmt::format("<{}>", name), 1));
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}) keys[key] = tokens.keys()[key];
    GgufWriter writer;
    for (const auto& [key, value] : keys) writer.set(key, value);
    const test::TemporaryFile vocabulary(writer.zeros()), path;
    test::write_random_model(path.path(), {.config = test::small_config(), .vocabulary = vocabulary.path()});
    const Model model = load_model(path.path());
    test::ServedModel served(model);
    for (const std::string suffix : {")b", ")b<mid>"}) { // the latter is text
        const Json body = {{"input_prefix", "a("}, {"input_suffix", suffix}, {"n_predict", 1}};
        CHECK(served.answer(infill, body)["tokens_evaluated"] == 3 + 2 + suffix.size());
    }
}

TEST_CASE("the middle of a text is written where the model has tokens for that") {
    std::string asked;
    ScriptedServer server([&](const std::string& prompt) { return asked = prompt, "middle"; });
    const auto ids = [&](const std::string& text) { return server.model.tokenizer.encode(text).size(); };
    const std::string expected = "<|fim_prefix|>a(<|fim_suffix|>)b<|fim_middle|>";
    const Json answer = server.answer(completions, {{"prompt", "a("}, {"suffix", ")b"}, {"max_tokens", 2}});
    CHECK(answer["usage"]["prompt_tokens"] == ids(expected));
    const Json filled = server.answer(infill, {{"input_prefix", "a("}, {"input_suffix", ")b"}, {"n_predict", 2}});
    CHECK(filled["tokens_evaluated"] == ids(expected));
    CHECK(filled["stop"] == true);
    CHECK(filled["stop_type"] == "limit");
    CHECK(filled["content"] == text(answer, 0));
    const Json more = {{"input_prefix", "a("}, {"input_suffix", ")b"}, {"prompt", "x"},
                       {"n_predict", 2},       {"stream", true},       {"input_extra", {{{"filename", "c.py"}, {"text", "c"}}}}};
    const auto events = data_events(server.stream(infill, more), false);
    CHECK(events.back()["tokens_evaluated"] ==
          ids("<|file_sep|>c.py\nc\n<|file_sep|>filename\n" + std::string("<|fim_prefix|>a(<|fim_suffix|>)b<|fim_middle|>x")));
    CHECK(events.front()["stop"] == false);
    CHECK(refused_field([&] { server.post(infill, R"({"input_prefix": 1})"); }) == "input_prefix");
    CHECK(refused_field([&] { server.post(infill, R"({"input_extra": ["a"]})"); }) == "input_extra[0]");
    ScriptedServer other("one two");
    const Json native = other.answer(completion, {{"prompt", "Count"}});
    CHECK(native["content"] == "one two");
    CHECK(native["stop_type"] == "eos");
    CHECK(refused_field([&] { other.post(completion, R"({"prompt": ["a", "b"]})"); }) == "prompt");
}

TEST_CASE("16 tokens are the default, and 0 only echo") {
    std::string long_text;
    for (int i = 0; i < 100; ++i) long_text += " a";
    ScriptedServer server(long_text);
    const Json answer = server.answer(completions, {{"prompt", "A"}});
    CHECK(answer["usage"]["completion_tokens"] == 16);
    CHECK(answer["choices"][0]["finish_reason"] == "length");
    CHECK(text(server.answer(completions, {{"prompt", "A"}, {"max_tokens", 0}, {"echo", true}}), 0) == "A");
    for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"})
        CHECK(server.answer(completions, {{"prompt", "A"}, {name, -1}})["usage"]["completion_tokens"] > 16);
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

TEST_CASE("tokens that are parts of a character are told apart by their bytes, as OpenAI writes them") {
    ScriptedServer server("x");
    const std::string text = "a\xF0\x9F\xA6\x86";
    const Json ids = server.model.tokenizer.encode(text);
    REQUIRE(ids.size() > 2);
    const Json body = {{"prompt", text}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 5}};
    const Json logprobs = server.answer(completions, body)["choices"][0]["logprobs"];
    std::set<std::string> names;
    for (size_t i = 0; i < ids.size(); ++i) {
        const std::string bytes(server.model.tokenizer.bytes(ids[i])), name = logprobs["tokens"][i];
        std::string expected = bytes == "a" ? "a" : "bytes:";
        for (const char c : bytes)
            if (bytes != "a") expected += fmt::format("\\x{:02x}", uint8_t(c));
        CHECK(name == expected);
        names.insert(name);
        if (i > 0) CHECK(logprobs["top_logprobs"][i].size() == 5);
    }
    CHECK(names.size() == ids.size());
}

TEST_CASE("a stop string ends a text; usage comes where it was asked for") {
    ScriptedServer server("one\n\ntwo");
    CHECK(text(server.answer(completions, {{"prompt", "A"}, {"stop", "\n\n"}}), 0) == "one");
    const Json body = {{"prompt", "A"}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    const auto events = data_events(server.stream(completions, body));
    CHECK(events.back()["choices"] == Json::array());
    CHECK(events.back()["usage"]["prompt_tokens"] == 1);
    CHECK(data_events(server.last_part).at(0)["choices"][0]["finish_reason"] == "stop"); // clients close before [DONE]
}

TEST_CASE("wrong completions are refused with the name of the field") {
    ScriptedServer server("yes");
    const std::vector<std::pair<const char*, const char*>> wrong = {{"prompt", "{}"},
                                                                    {"prompt", R"({"prompt": ""})"},
                                                                    {"prompt", R"({"prompt": []})"},
                                                                    {"prompt", R"({"prompt": {}})"},
                                                                    {"prompt", R"({"prompt": 5})"},
                                                                    {"prompt", R"({"prompt": [1.5]})"},
                                                                    {"prompt", R"({"prompt": [-1]})"},
                                                                    {"prompt", R"({"prompt": [151936]})"},
                                                                    {"prompt", R"({"prompt": [1, ["a"]]})"},
                                                                    {"prompt", R"({"prompt": ["a", -1]})"},
                                                                    {"prompt[1]", R"({"prompt": ["a", ""]})"},
                                                                    {"prompt[0]", R"({"prompt": [[]]})"},
                                                                    {"prompt[0]", R"({"prompt": [[[1]]]})"},
                                                                    {"prompt[0]", R"({"prompt": [{}]})"},
                                                                    {"echo", R"({"prompt": "a", "suffix": "b", "echo": true})"},
                                                                    {"prompt", R"({"prompt": ["a"], "suffix": "b"})"},
                                                                    {"best_of", R"({"prompt": "a", "best_of": 2})"},
                                                                    {"logprobs", R"({"prompt": "a", "logprobs": true})"},
                                                                    {"echo", R"({"prompt": "a", "echo": 1})"}};
    for (const auto& [field, body] : wrong) {
        CAPTURE(body);
        CHECK(refused_field([&] { server.post(completions, body); }) == field);
    }
    CHECK(text(server.answer(completions, {{"prompt", "A"}}), 0) == "yes");
    for (const Json& prompt : {Json{1, "A"}, Json{"A", 1}, Json{{"prompt_string", "A"}}}) { // one prompt, as llama.cpp has it
        const Json reply = server.answer(completions, {{"prompt", prompt}});
        CHECK(reply.at("choices").size() == 1);
        CHECK(reply.at("usage").at("prompt_tokens") == prompt.size());
    }
}
