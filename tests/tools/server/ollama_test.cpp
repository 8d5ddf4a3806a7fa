// Ollama's API: the same conversations and answers as by the other APIs, as lines of JSON.
#include "tests/support/text.h"
#include "tests/tools/server/chat_answers.h"
#include "tests/tools/server/refused.h"

using namespace tq;
using namespace tq::server;
using test::contains;

namespace {

std::vector<Json> lines_of(const std::string& bytes) {
    std::vector<Json> lines;
    for (size_t begin = 0; begin < bytes.size();) {
        const size_t end = bytes.find('\n', begin);
        REQUIRE(end != bytes.npos);
        lines.push_back(Json::parse(bytes.substr(begin, end - begin)));
        begin = end + 1;
    }
    return lines;
}

std::vector<Json> stream_lines(ScriptedServer& server, HttpReply (*handle)(Service&, const HttpRequest&), const Json& body) {
    const HttpReply reply = server.post(handle, body.dump());
    REQUIRE(reply.stream);
    CHECK(reply.type == "application/x-ndjson");
    std::string bytes;
    reply.stream(Send([&](std::string_view part, bool) { return bytes += part, true; }));
    return lines_of(bytes);
}

Json ollama_body(const std::string& question, const Json& more = Json::object()) {
    Json body = {{"model", "any"}, {"messages", Json::array({{{"role", "user"}, {"content", question}}})}};
    body.update(more);
    return body;
}

std::string prompt_seen(const Json& body, HttpReply (*handle)(Service&, const HttpRequest&) = ollama_chat,
                        ChatVariant variant = ChatVariant::instruct, const ServiceOptions& options = ScriptedServer::greedy()) {
    std::string seen;
    ScriptedServer server(
        [&](const std::string& prompt) {
            seen = prompt;
            return "ok";
        },
        variant, options);
    Json whole = body;
    whole["stream"] = false;
    server.answer(handle, whole);
    return seen;
}

} // namespace

TEST_CASE("a chat is streamed line by line unless it says otherwise, and both say the same") {
    ScriptedServer server("one two three");
    const auto lines = stream_lines(server, ollama_chat, ollama_body("Say"));
    std::string content;
    for (size_t i = 0; i < lines.size(); ++i) {
        CHECK(lines[i].at("done") == (i + 1 == lines.size()));
        CHECK(lines[i].at("message").at("role") == "assistant");
        CHECK(lines[i].at("created_at").get<std::string>().ends_with("Z"));
        content += lines[i].at("message").at("content");
    }
    CHECK(lines.size() > 2);
    CHECK(content == "one two three");
    const Json whole = server.answer(ollama_chat, ollama_body("Say", {{"stream", false}}));
    CHECK(whole.at("message").at("content") == content);
    for (const Json& end : {whole, lines.back()}) {
        CHECK(end.at("done_reason") == "stop");
        for (const char* name : {"total_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"})
            CHECK(end.at(name) > 0);
    }
    CHECK(server.answer(ollama_chat, ollama_body("Say", {{"stream", false}, {"options", {{"num_predict", 1}}}}))
              .at("done_reason") == "length");
}

TEST_CASE("a call has its arguments as an object, in one line, and a tool's result is a turn") {
    ScriptedServer server("Well.\n" + weather_text);
    const Json body = ollama_body("Weather?", {{"tools", weather_tools()}});
    Json call;
    for (const Json& line : stream_lines(server, ollama_chat, body))
        if (line.at("message").contains("tool_calls")) {
            call = line.at("message").at("tool_calls").at(0).at("function");
            CHECK(line.at("message").at("tool_calls").at(0).at("id") != "");
        }
    CHECK(call == Json::parse(R"({"index": 0, "name": "weather", "arguments": {"city": "Oslo"}})"));
    const Json whole = server.answer(ollama_chat, ollama_body("Weather?", {{"tools", weather_tools()}, {"stream", false}}));
    CHECK(whole.at("message").at("tool_calls").at(0).at("function") == call);
    CHECK(whole.at("message").at("content") == "Well.");
    Json asked = ollama_body("Weather?", {{"tools", weather_tools()}});
    asked["messages"].push_back(whole.at("message"));
    asked["messages"].push_back({{"role", "tool"}, {"tool_name", "weather"}, {"content", "sunny"}});
    const std::string prompt = prompt_seen(asked);
    CHECK(contains(prompt, "Well.\n" + weather_text));
    CHECK(contains(prompt, "<tool_response>\nsunny\n</tool_response>"));
}

TEST_CASE("a call that is cut off has the members that came whole") {
    const std::string said =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 1000}}\n</tool_call>";
    ScriptedServer server(said);
    const Json whole = server.answer(
        ollama_chat, ollama_body("Weather?", {{"tools", weather_tools()}, {"stream", false}, {"options", {{"stop", {"1000"}}}}}));
    CHECK(whole.at("message").at("tool_calls").at(0).at("function").at("arguments") == Json{{"city", "Oslo"}});
    CHECK(whole.at("message").at("content") == "");
}

TEST_CASE("thinking is told apart, and asked for by \"think\"") {
    ScriptedServer server("<think>\nhm\n</think>\n\nYes.", ChatVariant::hybrid);
    const Json whole = server.answer(ollama_chat, ollama_body("Is it?", {{"stream", false}, {"think", true}}));
    CHECK(whole.at("message").at("thinking") == "hm");
    CHECK(whole.at("message").at("content") == "Yes.");
    std::string thinking;
    for (const Json& line : stream_lines(server, ollama_generate, {{"prompt", "Is it?"}}))
        if (line.contains("thinking")) thinking += line.at("thinking");
    CHECK(thinking == "hm");
    CHECK(contains(prompt_seen(ollama_body("x", {{"think", false}}), ollama_chat, ChatVariant::hybrid), "</think>"));
    CHECK(!contains(prompt_seen(ollama_body("x", {{"think", "high"}}), ollama_chat, ChatVariant::hybrid), "</think>"));
    Json asked = ollama_body("And?");
    asked["messages"].push_back({{"role", "assistant"}, {"thinking", "hm"}, {"content", "Yes."}});
    asked["messages"].push_back({{"role", "user"}, {"content", "Why?"}});
    CHECK(contains(prompt_seen(asked), "assistant\nYes.<|im_end|>"));
}

TEST_CASE("the words of a generate are the same prompt as a chat's; raw ones are as they are") {
    const std::string chat = prompt_seen(ollama_body("Say"));
    CHECK(prompt_seen({{"prompt", "Say"}}, ollama_generate) == chat);
    CHECK(prompt_seen({{"prompt", "Say"}, {"system", ""}, {"template", ""}, {"context", Json::array()}}, ollama_generate) ==
          chat);
    CHECK(prompt_seen({{"prompt", "Say"}, {"system", "Be brief."}}, ollama_generate) ==
          "<|im_start|>system\nBe brief.<|im_end|>\n" + chat);
    ScriptedServer raw("x");
    const auto prompt_tokens = [&](const Json& body) {
        Json whole = body;
        whole["stream"] = false;
        return raw.answer(ollama_generate, whole).at("prompt_eval_count").get<size_t>();
    };
    const auto tokens_of = [&](const char* text) { return raw.model.tokenizer.encode(text, true).size(); };
    CHECK(prompt_tokens({{"prompt", "Once upon"}, {"raw", true}}) == tokens_of("Once upon"));
    CHECK(prompt_tokens({{"prompt", "a"}, {"suffix", "b"}}) == tokens_of("<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"));
    CHECK(contains(prompt_seen({{"prompt", "What is it?"}, {"images", {"iVBORw0KGgo="}}}, ollama_generate),
                   "What is it?\n[image is left out: the model reads only text]"));
    ScriptedServer server("four five");
    CHECK(server.answer(ollama_generate, {{"prompt", "Say"}, {"stream", false}}).at("response") == "four five");
}

TEST_CASE("the context that a generate returns goes on as a chat with the same words would") {
    for (const ChatVariant variant : {ChatVariant::instruct, ChatVariant::hybrid, ChatVariant::qwen35, ChatVariant::qwen38}) {
        CAPTURE(int(variant));
        std::vector<std::string> seen;
        ServiceOptions options = ScriptedServer::greedy();
        options.system = "Be kind.";
        ScriptedServer server(
            [&](const std::string& prompt) {
                seen.push_back(prompt);
                return "answer " + std::to_string(seen.size());
            },
            variant, options);
        const auto generate = [&](Json body) {
            body["stream"] = body["think"] = false;
            return server.answer(ollama_generate, body);
        };
        const Json first = generate({{"prompt", "One"}});
        const Json second = generate({{"prompt", "Two"}, {"context", first.at("context")}});
        const Json third = generate({{"prompt", "Three"}, {"context", second.at("context")}});
        Json chat = ollama_body("One", {{"think", false}});
        for (const auto& [role, text] : {std::pair("assistant", "answer 1"), std::pair("user", "Two"),
                                         std::pair("assistant", "answer 2"), std::pair("user", "Three")})
            chat["messages"].push_back({{"role", role}, {"content", text}});
        CHECK(seen.at(2) == prompt_seen(chat, ollama_chat, variant, options));
        CHECK(third.at("context").size() > second.at("context").size());
        CHECK(stream_lines(server, ollama_generate, {{"prompt", "One"}}).back().contains("context"));
        generate({{"prompt", "Two"}, {"context", first.at("context")}, {"system", "New."}});
        CHECK(contains(seen.back(), "answer 1"));
        CHECK(contains(seen.back().substr(seen.back().find("answer 1")), "New."));
        CHECK(!generate({{"prompt", "x"}, {"raw", true}}).contains("context"));
    }
    ScriptedServer server("x");
    const auto refused = [&](const Json& body) { return refused_field([&] { server.post(ollama_generate, body.dump()); }); };
    for (const Json& wrong : {Json("a"), Json{-1}, Json{1e9}, Json{"a"}, Json{1u << 30}})
        CHECK(refused({{"prompt", "x"}, {"context", wrong}}) == "context");
    CHECK(refused({{"prompt", "x"}, {"raw", true}, {"context", {1, 2}}}) == "context");
    CHECK(refused({{"prompt", "x"}, {"raw", true}, {"system", "s"}}) == "system");
}

TEST_CASE("a format is followed: json, a schema") {
    ScriptedServer server("hello");
    const Json any =
        server.answer(ollama_chat, ollama_body("x", {{"stream", false}, {"format", "json"}, {"options", {{"num_predict", 30}}}}));
    CHECK(any.at("message").at("content").get<std::string>().starts_with("{"));
    const Json schema = {{"type", "object"}, {"properties", {{"a", {{"const", 1}}}}}, {"required", {"a"}}};
    const Json one = server.answer(ollama_chat, ollama_body("x", {{"stream", false}, {"format", schema}}));
    CHECK(Json::parse(one.at("message").at("content").get<std::string>()) == Json{{"a", 1}});
    server.answer(ollama_chat, ollama_body("x", {{"stream", false}, {"format", ""}}));
}

TEST_CASE("no messages and no prompt only load the model") {
    ScriptedServer server("never");
    for (const auto handle : {ollama_chat, ollama_generate}) {
        const Json reply = server.answer(handle, {{"model", "any"}, {"keep_alive", -1}});
        CHECK(reply.at("done") == true);
        CHECK(reply.at("done_reason") == "load");
        for (const Json& kept : {Json(0), Json("0s")})
            CHECK(server.answer(handle, {{"model", "any"}, {"keep_alive", kept}}).at("done_reason") == "unload");
    }
}

TEST_CASE("logprobs of the content's tokens, streamed or not") {
    ScriptedServer server("one two three");
    const Json wanted = {{"logprobs", true}, {"top_logprobs", 2}};
    Json whole = ollama_body("Say", wanted);
    whole["stream"] = false;
    const Json all = server.answer(ollama_chat, whole).at("logprobs");
    Json streamed = Json::array();
    std::string text;
    for (const Json& line : stream_lines(server, ollama_chat, ollama_body("Say", wanted)))
        for (const Json& token : line.value("logprobs", Json::array())) streamed.push_back(token);
    CHECK(streamed == all);
    for (const Json& token : all) {
        text += token.at("token");
        CHECK(token.at("top_logprobs").size() == 2);
        CHECK(token.at("logprob") <= 0);
    }
    CHECK(text == "one two three");
    Json generate = {{"prompt", "Say"}, {"raw", true}, {"stream", false}, {"options", {{"num_predict", 2}}}};
    CHECK(!server.answer(ollama_generate, generate).contains("logprobs"));
    generate["logprobs"] = true;
    CHECK(server.answer(ollama_generate, generate).at("logprobs").size() == 2);
    CHECK(refused_field([&] { server.post(ollama_chat, ollama_body("x", {{"top_logprobs", 2}}).dump()); }) == "top_logprobs");
}

TEST_CASE("models are not pulled, pushed, created, copied or deleted, which the message says") {
    ScriptedServer server("x");
    size_t found = 0;
    for (const Endpoint& route : routes(server.service)) {
        if (route.path != "/api/delete" && route.path != "/api/pull" && route.path != "/api/blobs/*") continue;
        HttpRequest request;
        request.path = route.path;
        try {
            route.handle(request);
        } catch (const ApiError& error) {
            ++found;
            CHECK(error.status == 404);
            CHECK(contains(error.what(), "scripted"));
            CHECK(error_body(error, route.envelope).starts_with("{\"error\":\""));
        }
    }
    CHECK(found == 3);
}

TEST_CASE("options that have no use here are said once in the log; wrong ones are refused by name") {
    std::string log;
    ServiceOptions options = ScriptedServer::greedy();
    options.log = [&](const std::string& line) { log += line + "\n"; };
    ScriptedServer server([](const std::string&) { return "ok"; }, ChatVariant::instruct, options);
    const Json some = {{"num_ctx", 4096}, {"num_thread", 2}, {"top_k", 5}, {"num_predict", -1}};
    for (int i = 0; i < 2; ++i) server.answer(ollama_chat, ollama_body("x", {{"stream", false}, {"options", some}}));
    CHECK(contains(log, "the option \"num_ctx\""));
    CHECK(log.find("num_ctx") == log.rfind("num_ctx"));
    CHECK(!contains(log, "top_k"));
    const auto refused = [&](const Json& more) {
        return refused_field([&] { server.post(ollama_chat, ollama_body("x", more).dump()); });
    };
    CHECK(refused({{"options", {{"temperature", "hot"}}}}) == "temperature");
    CHECK(refused({{"options", {{"num_predict", 1.5}}}}) == "options.num_predict");
    CHECK(refused({{"format", 7}}) == "format");
    CHECK(refused({{"think", "perhaps"}}) == "think");
    CHECK(refused({{"messages", {{{"role", "developer"}, {"content", "x"}}}}}) == "messages[0].role");
}

TEST_CASE("what clients ask before they chat: version, tags, show, ps") {
    ScriptedServer server("x");
    CHECK(server.answer(ollama_version, Json::object()).at("version").get<std::string>().starts_with("0."));
    const Json tag = server.answer(ollama_tags, Json::object()).at("models").at(0);
    CHECK(tag.at("name") == "scripted");
    CHECK(tag.at("digest").get<std::string>().size() == 64);
    const Json show = server.answer(ollama_show, {{"model", "scripted"}});
    CHECK(show.at("details").at("family") == tag.at("details").at("family"));
    CHECK(show.at("model_info").at("general.architecture") == tag.at("details").at("family"));
    const Json capabilities = show.at("capabilities");
    CHECK(std::ranges::find(capabilities, "tools") != capabilities.end());
    CHECK(server.answer(ollama_ps, Json::object()).at("models").at(0).at("context_length") > 0);
}
