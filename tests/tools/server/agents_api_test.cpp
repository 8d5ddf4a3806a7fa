// POST /v1/responses and /v1/messages, as agents see them.
#include "tests/tools/server/answers.h"
#include "tests/tools/server/refused.h"
#include "tests/tools/server/scripted_server.h"

using namespace tq;
using namespace tq::server;

namespace {

const std::string weather_text = "<think>\nHm\n</think>\n\nLet me see\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
                                 "{\"city\": \"Oslo\"}}\n</tool_call>";

Json message_body(const std::string& question, const Json& more = Json::object()) {
    Json body = chat_body(question, more);
    body["max_tokens"] = more.value("max_tokens", 200);
    return body;
}

Json with_weather(Json body) {
    const Json schema = weather_tools().at(0).at("function").at("parameters");
    body["tools"] = {{{"name", "weather"}, {"input_schema", schema}}};
    body["thinking"] = {{"type", "adaptive"}};
    return body;
}

Json response_body(const std::string& question, const Json& more = Json::object()) {
    Json body = {{"model", "any"}, {"input", question}};
    body.update(more);
    return body;
}

const Json weather_function = {
    {"type", "function"}, {"name", "weather"}, {"parameters", weather_tools().at(0).at("function").at("parameters")}};

} // namespace

TEST_CASE("a message is answered, and its prompt is counted before") {
    ScriptedServer server("It is sunny.");
    const Json message = server.answer(messages, message_body("How is it?"));
    CHECK(message.at("content") == Json::array({{{"type", "text"}, {"text", "It is sunny."}}}));
    CHECK(message.at("stop_reason") == "end_turn");
    CHECK(message.at("model") == "scripted");
    CHECK(message.at("usage").at("output_tokens") == server.model.tokenizer.encode("It is sunny.").size());
    CHECK(server.answer(count_tokens, chat_body("How is it?")) == Json{{"input_tokens", message.at("usage").at("input_tokens")}});
}

TEST_CASE("a hybrid model thinks for Anthropic's clients only when they ask for it") {
    ScriptedServer server(
        [](const std::string& prompt) { return prompt.ends_with("</think>\n\n") ? "plain" : "<think>\nHm\n</think>\n\nHi"; },
        ChatVariant::hybrid);
    CHECK(server.answer(messages, message_body("Hi")).at("content") == Json::array({{{"type", "text"}, {"text", "plain"}}}));
    const Json thinking = {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}};
    CHECK(server.answer(messages, message_body("Hi", thinking)).at("content").at(0).at("thinking") == "Hm");
}

TEST_CASE("thinking, text and a call stream as Anthropic's blocks") {
    ScriptedServer server(weather_text, ChatVariant::hybrid);
    const Json body = with_weather(message_body("How is it?", {{"stream", true}}));
    const auto events = read_stream(server.stream(messages, body));
    Json blocks = Json::array();
    for (const Json& event : events)
        if (event.at("type") == "content_block_start") blocks.push_back(event.at("content_block").at("type"));
    CHECK(blocks == Json{"thinking", "text", "tool_use"});
    CHECK(events.at(events.size() - 2).at("delta").at("stop_reason") == "tool_use");
    CHECK(events.back().at("type") == "message_stop");
    Json whole = body;
    whole["stream"] = false;
    CHECK(server.answer(messages, whole).at("content").at(2).at("input") == Json{{"city", "Oslo"}});
}

TEST_CASE("thinking, text and a call stream as items of a response") {
    ScriptedServer server(weather_text, ChatVariant::hybrid);
    const Json body = response_body("How is it?", {{"stream", true}, {"tools", {weather_function}}});
    const auto events = read_stream(server.stream(responses, body));
    CHECK(events.at(0).at("type") == "response.created");
    REQUIRE(events.back().at("type") == "response.completed");
    const Json& output = events.back().at("response").at("output");
    REQUIRE(output.size() == 3);
    CHECK(output.at(0).at("content").at(0).at("text") == "Hm");
    CHECK(output.at(1).at("content").at(0).at("text") == "Let me see");
    CHECK(output.at(2).at("arguments") == "{\"city\": \"Oslo\"}");
    CHECK(server.answer(response_input_tokens, response_body("How is it?", {{"tools", {weather_function}}})).at("input_tokens") ==
          events.back().at("response").at("usage").at("input_tokens"));
}

TEST_CASE("a response has the logprobs of its text, not those of its thinking or its calls") {
    ScriptedServer server(weather_text);
    const Json fields = {{"tools", {weather_function}}, {"include", {"message.output_text.logprobs"}}, {"top_logprobs", 2}};
    const Json response = server.answer(responses, response_body("How is it?", fields));
    const Json& content = response.at("output").at(1).at("content").at(0);
    CHECK(content.at("text").get<std::string>() == "Let me see");
    std::string text; // with the line breaks around it
    for (const Json& token : content.at("logprobs")) {
        text += token.at("token").get<std::string>();
        CHECK(token.at("top_logprobs").size() == 2);
    }
    const size_t begin = text.find_first_not_of('\n'), end = text.find_last_not_of('\n') + 1;
    CHECK(text.substr(begin, end - begin) == "Let me see");
}

TEST_CASE("trip-wire 7: a probe without any input is answered with one token") {
    ScriptedServer server("one two three");
    const Json response = server.answer(responses, response_body("", {{"max_output_tokens", 1}}));
    CHECK(response.at("status") == "incomplete");
    CHECK(response.at("incomplete_details").at("reason") == "max_output_tokens");
    CHECK(response.at("usage").at("output_tokens") == 1);
}

TEST_CASE("trip-wire 7: responses are not stored, and asking for one says so") {
    ScriptedServer server("Hi");
    try {
        server.post(stored_response, "");
        FAIL("there is none");
    } catch (const ApiError& error) {
        CHECK(error.status == 404);
        CHECK(std::string(error.what()).find("not store") != std::string::npos);
    }
}

TEST_CASE("trip-wire 8: a prompt is the same whatever its billing header") {
    ScriptedServer server([](const std::string& prompt) { return std::to_string(prompt.size()); });
    Json body = message_body("Hi");
    std::vector<Json> answers;
    for (const char* header : {"x-anthropic-billing-header: cch=1;", "x-anthropic-billing-header: cch=23456;"}) {
        body["system"] = Json::array({{{"type", "text"}, {"text", header}}, {{"type", "text"}, {"text", "Be brief"}}});
        answers.push_back(server.answer(messages, body).at("content"));
    }
    CHECK(answers[0] == answers[1]);
}

TEST_CASE("trip-wire 10: a prompt that exceeds the context is refused in Anthropic's words, with both numbers") {
    ScriptedServer server([](const std::string&) { return "Hi"; }, ChatVariant::instruct, ScriptedServer::greedy(),
                          {.context_size = 256});
    std::string question;
    for (int i = 0; i < 300; ++i) question += "one two ";
    const size_t tokens = server.answer(count_tokens, message_body(question)).at("input_tokens").get<size_t>();
    REQUIRE(tokens > 256);
    try {
        server.post(messages, message_body(question, {{"stream", true}}).dump());
        FAIL("it does not fit");
    } catch (const ApiError& error) {
        CHECK(error.status == 400);
        CHECK(error.what() == fmt::format("prompt is too long: {} tokens > 256 maximum", tokens));
    }
    try {
        server.post(responses, response_body(question).dump());
        FAIL("it does not fit");
    } catch (const ApiError& error) {
        CHECK(error.code == "context_length_exceeded");
        CHECK(std::string(error.what()).find("256") != std::string::npos);
        CHECK(std::string(error.what()).find(std::to_string(tokens)) != std::string::npos);
    }
}

TEST_CASE("trip-wire 10: streams are pinged while a prompt runs") {
    ServiceOptions options = ScriptedServer::greedy();
    options.ping_interval = std::chrono::milliseconds(1);
    ScriptedServer server([](const std::string&) { return "Hi"; }, ChatVariant::instruct, options,
                          {.delay = std::chrono::milliseconds(300)});
    const auto pings = [](const std::string& text, const std::string& ping) {
        size_t count = 0;
        for (size_t at = text.find(ping); at != text.npos; at = text.find(ping, at + 1)) ++count;
        return count;
    };
    CHECK(pings(server.stream(messages, message_body("Hi", {{"stream", true}})), "event: ping\n") > 1);
    CHECK(pings(server.stream(responses, response_body("Hi", {{"stream", true}})), "event: response.in_progress\n") > 2);
}

TEST_CASE("trip-wire 10: a client that goes away stops its answer") {
    ScriptedServer server([](const std::string&) { return std::string(3000, '1'); }, ChatVariant::instruct,
                          ScriptedServer::greedy(), {.delay = std::chrono::milliseconds(1)});
    const std::pair<HttpReply (*)(Service&, const HttpRequest&), Json> requests[] = {
        {messages, message_body("Hi", {{"stream", true}, {"max_tokens", 3000}})},
        {responses, response_body("Hi", {{"stream", true}})}};
    for (const auto& [handle, body] : requests) {
        HttpReply reply = server.post(handle, body.dump());
        int sent = 0;
        reply.stream(Send([&](std::string_view, bool) { return ++sent < 6; }));
        CHECK(sent == 6);
    }
    CHECK(server.scheduler.drain(std::chrono::seconds(60)));
    CHECK(server.scheduler.status().cancelled == 2);
}
