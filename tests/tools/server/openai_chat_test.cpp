// POST /v1/chat/completions, as clients see it.
#include "tests/tools/server/chat_answers.h"

using namespace tq;
using namespace tq::server;

TEST_CASE("a chat is answered with content, usage and timings") {
    ScriptedServer server("It is sunny.");
    const Json answer = server.answer(chat_completions, chat_body("How is it?"));
    CHECK(answer["object"] == "chat.completion");
    CHECK(answer["id"].get<std::string>().starts_with("chatcmpl-"));
    CHECK(answer["model"] == "scripted");
    CHECK(answer["created"].is_number_integer());
    const Json expected = {{"index", 0},
                           {"message", {{"role", "assistant"}, {"content", "It is sunny."}}},
                           {"logprobs", nullptr},
                           {"finish_reason", "stop"}};
    CHECK(choice(answer) == expected);
    const uint32_t prompt = answer["usage"]["prompt_tokens"], said = answer["usage"]["completion_tokens"];
    CHECK(prompt == server.model.tokenizer.encode("<|im_start|>user\nHow is it?<|im_end|>\n<|im_start|>assistant\n").size());
    CHECK(said == server.model.tokenizer.encode("It is sunny.").size());
    CHECK(answer["usage"]["total_tokens"] == prompt + said);
    CHECK(answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0);
    CHECK(answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0);
    CHECK(answer["timings"]["prompt_n"] == prompt);
    CHECK(answer["timings"]["cache_n"] == 0);
}

TEST_CASE("trip-wire 1: the role is in the first delta only") {
    ScriptedServer server("one two three");
    const auto events = data_events(server.stream(chat_completions, chat_body("Say", {{"stream", true}, {"n", 2}})));
    std::vector<int> seen(2);
    for (const Json& event : events) {
        const bool first = seen.at(choice(event)["index"])++ == 0;
        CHECK(choice(event)["delta"].contains("role") == first);
        if (first) CHECK(choice(event)["delta"]["role"] == "assistant");
        CHECK(event["object"] == "chat.completion.chunk");
        CHECK(event["id"] == events[0]["id"]);
    }
    CHECK(seen[0] > 2);
    CHECK(seen[1] > 2);
}

TEST_CASE("trip-wire 2: no delta has empty tool_calls, and thinking stays apart") {
    ScriptedServer server("<think>\nhm, well\n</think>\n\nyes, it is", ChatVariant::hybrid);
    const auto events = data_events(server.stream(chat_completions, chat_body("Is it?", {{"stream", true}})));
    for (const Json& event : events) {
        const Json delta = choice(event)["delta"];
        CHECK(!delta.contains("tool_calls"));
        for (const auto& [name, value] : delta.items()) CHECK((value != "" || (name == "content" && delta.contains("role"))));
    }
    CHECK(joined(events, "reasoning_content") == "hm, well");
    CHECK(joined(events, "content") == "yes, it is");
}

TEST_CASE("trip-wire 3: finish_reason is null in every chunk but the last") {
    ScriptedServer server("one two three");
    const auto events = data_events(server.stream(chat_completions, chat_body("Say", {{"stream", true}})));
    REQUIRE(events.size() > 2);
    for (size_t i = 0; i + 1 < events.size(); ++i) {
        REQUIRE(choice(events[i]).contains("finish_reason"));
        CHECK(choice(events[i])["finish_reason"].is_null());
    }
    CHECK(choice(events.back())["finish_reason"] == "stop");
    CHECK(choice(events.back())["delta"] == Json::object());
}

TEST_CASE("trip-wire 4: a call begins with index, id, type and name; its arguments follow as texts") {
    ScriptedServer server(weather_text + "\n" + weather_text);
    const auto events =
        data_events(server.stream(chat_completions, chat_body("Weather?", {{"stream", true}, {"tools", weather_tools()}})));
    std::vector<std::string> arguments, ids;
    for (const Json& event : events) {
        const Json delta = choice(event)["delta"];
        if (!delta.contains("tool_calls")) continue;
        REQUIRE(delta["tool_calls"].size() == 1);
        const Json call = delta["tool_calls"][0];
        if (call["index"] == arguments.size()) {
            ids.push_back(call.at("id"));
            CHECK(call.at("type") == "function");
            CHECK(call.at("function") == Json::parse(R"({"name": "weather", "arguments": ""})"));
            arguments.push_back("");
        } else {
            REQUIRE(call["index"] == arguments.size() - 1);
            CHECK(!call.contains("id"));
            CHECK(!call["function"].contains("name"));
            arguments.back() += call["function"]["arguments"].get<std::string>();
        }
    }
    REQUIRE(arguments.size() == 2);
    CHECK(arguments[0] == "{\"city\": \"Oslo\"}");
    CHECK(arguments[1] == arguments[0]);
    CHECK(ids[0] != ids[1]);
    CHECK(joined(events, "content") == "");
    CHECK(choice(events.back())["finish_reason"] == "tool_calls");
}

TEST_CASE("trip-wire 5: usage comes in a chunk without choices, and only where it was asked for") {
    ScriptedServer server("yes");
    const auto without = data_events(server.stream(chat_completions, chat_body("Is it?", {{"stream", true}})));
    for (const Json& event : without) {
        CHECK(!event.contains("usage"));
        CHECK(event["choices"].size() == 1);
    }
    const auto with = data_events(
        server.stream(chat_completions, chat_body("Is it?", {{"stream", true}, {"stream_options", {{"include_usage", true}}}})));
    REQUIRE(with.size() == without.size() + 1);
    CHECK(with.back()["choices"] == Json::array());
    CHECK(with.back()["usage"]["completion_tokens"] == server.model.tokenizer.encode("yes").size());
}

TEST_CASE("trip-wire 10: a prompt that exceeds the context is a 400 with both numbers") {
    ScriptedServer server([](const std::string&) { return "yes"; }, ChatVariant::instruct, ScriptedServer::greedy(),
                          {.context_size = 40});
    std::string question;
    for (int i = 0; i < 100; ++i) question += " a";
    try {
        server.post(chat_completions, chat_body(question, {{"stream", true}}).dump());
        FAIL("it was answered");
    } catch (const ApiError& error) {
        CHECK(error.status == 400);
        CHECK(error.type == "invalid_request_error");
        CHECK(error.code == "context_length_exceeded");
        const size_t tokens =
            server.model.tokenizer.encode("<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n").size();
        CHECK(std::string(error.what()).find("maximum context length is 40 tokens") != std::string::npos);
        CHECK(std::string(error.what()).find(fmt::format("resulted in {} tokens", tokens)) != std::string::npos);
    }
}

TEST_CASE("trip-wire 10: a client that is gone stops its answer, before the first token and after it") {
    std::string long_text;
    for (int i = 0; i < 2000; ++i) long_text += " a";
    for (const bool streams : {false, true}) {
        CAPTURE(streams);
        ScriptedServer server([&](const std::string&) { return long_text; }, ChatVariant::instruct, ScriptedServer::greedy(),
                              {.delay = std::chrono::microseconds(500)});
        server.disconnected = true;
        const HttpReply reply = server.post(chat_completions, chat_body("Say", {{"stream", streams}}).dump());
        std::string bytes;
        if (reply.stream) reply.stream(Send([&](std::string_view part, bool) { return bytes += part, true; }));
        CHECK(bytes.find("[DONE]") == std::string::npos);
        if (!reply.stream) CHECK(reply.status == 499);
        server.disconnected = false;
        // The slot is free again long before the text would be at its end.
        const Json next = server.answer(chat_completions, chat_body("Say", {{"max_tokens", 1}}));
        CHECK(choice(next)["finish_reason"] == "length");
        server.scheduler.drain(std::chrono::seconds(10));
        CHECK(server.scheduler.status().cancelled == 1);
    }
}

TEST_CASE("trip-wire 10: a client that takes no more bytes stops its answer") {
    ScriptedServer server("one two three four five");
    const HttpReply reply = server.post(chat_completions, chat_body("Say", {{"stream", true}}).dump());
    int sent = 0;
    reply.stream(Send([&](std::string_view, bool) { return ++sent < 2; }));
    CHECK(sent == 2);
}

TEST_CASE("trip-wire 10: pings are sent while the prompt is run") {
    ServiceOptions options = ScriptedServer::greedy();
    options.ping_interval = std::chrono::milliseconds(1);
    ScriptedServer server([](const std::string&) { return "yes"; }, ChatVariant::instruct, options,
                          {.delay = std::chrono::milliseconds(400)});
    const std::string bytes = server.stream(chat_completions, chat_body("Is it?", {{"stream", true}}));
    const Json ping = choice(data_events(bytes).front()); // an event: readers of events do not count comments
    CHECK(ping == Json{{"index", 0}, {"delta", Json::object()}, {"logprobs", nullptr}, {"finish_reason", nullptr}});
    CHECK(joined(data_events(bytes), "content") == "yes");
}

TEST_CASE("trip-wire 10: no character is divided") {
    const std::string said = "\xF0\x9F\xA6\x9C caf\xC3\xA9 \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80";
    ScriptedServer server(said);
    const auto events = data_events(server.stream(chat_completions, chat_body("Say", {{"stream", true}}))); // Json::parse checks
    CHECK(joined(events, "content") == said);
    for (const Json& event : events) CHECK(event.dump().find("\xEF\xBF\xBD") == std::string::npos);
}

TEST_CASE("a stop string ends the content, across tokens, but not the thinking") {
    ScriptedServer server("<think>\none STOP two\n</think>\n\nthree S\nTO ST STOP four", ChatVariant::hybrid);
    const Json answer = server.answer(chat_completions, chat_body("Say", {{"stop", Json::array({"nothing", "STOP"})}}));
    CHECK(choice(answer)["message"]["reasoning_content"] == "one STOP two");
    CHECK(choice(answer)["message"]["content"] == "three S\nTO ST ");
    CHECK(choice(answer)["finish_reason"] == "stop");
}

TEST_CASE("calls are in the message, whose content is null where there is nothing else") {
    ScriptedServer server(weather_text);
    const Json answer = server.answer(chat_completions, chat_body("Weather?", {{"tools", weather_tools()}}));
    const Json message = choice(answer)["message"];
    CHECK(message["content"].is_null());
    REQUIRE(message["tool_calls"].size() == 1);
    CHECK(message["tool_calls"][0]["type"] == "function");
    CHECK(message["tool_calls"][0]["id"].get<std::string>().starts_with("call_"));
    CHECK(message["tool_calls"][0]["function"] == Json::parse(R"({"name": "weather", "arguments": "{\"city\": \"Oslo\"}"})"));
    CHECK(choice(answer)["finish_reason"] == "tool_calls");
}

TEST_CASE("tool_choice none forbids calls; without tools a call is text") {
    ScriptedServer server("well " + weather_text);
    const Json none = server.answer(
        chat_completions, chat_body("Weather?", {{"tools", weather_tools()}, {"tool_choice", "none"}, {"max_tokens", 60}}));
    CHECK(!choice(none)["message"].contains("tool_calls"));
    CHECK(choice(none)["message"]["content"].get<std::string>().find("<tool_call>") == std::string::npos);
    const Json without = server.answer(chat_completions, chat_body("Weather?"));
    CHECK(!choice(without)["message"].contains("tool_calls"));
    CHECK(choice(without)["message"]["content"].get<std::string>().find("<tool_call>") != std::string::npos);
}

TEST_CASE("logprobs are those of the content's tokens") {
    ScriptedServer server("<think>\nhm\n</think>\n\nyes, caf\xC3\xA9", ChatVariant::hybrid);
    const Json more = {{"logprobs", true}, {"top_logprobs", 2}};
    const Json whole = choice(server.answer(chat_completions, chat_body("Is it?", more)))["logprobs"]["content"];
    std::string bytes;
    for (const Json& token : whole) {
        CHECK(token["logprob"].get<double>() <= 0);
        CHECK(token["top_logprobs"].size() == 2);
        for (const Json& byte : token["bytes"]) bytes += char(byte.get<int>());
    }
    CHECK(bytes == "\n\nyes, caf\xC3\xA9");
    Json streamed = Json::array(), body = chat_body("Is it?", more);
    body["stream"] = true;
    for (const Json& event : data_events(server.stream(chat_completions, body))) {
        const Json logprobs = choice(event)["logprobs"];
        if (!logprobs.is_null())
            for (const Json& token : logprobs["content"]) streamed.push_back(token);
    }
    CHECK(streamed == whole);
}

TEST_CASE("max_tokens ends an answer, and n asks for several") {
    ScriptedServer server("one two three");
    const Json answer = server.answer(chat_completions, chat_body("Say", {{"max_tokens", 2}, {"n", 3}}));
    std::vector<uint32_t> ids = server.model.tokenizer.encode("one two three");
    ids.resize(2);
    const std::string two = server.model.tokenizer.decode(ids);
    REQUIRE(answer["choices"].size() == 3);
    for (size_t i = 0; i < 3; ++i) {
        CHECK(answer["choices"][i]["index"] == i);
        CHECK(answer["choices"][i]["finish_reason"] == "length");
        CHECK(answer["choices"][i]["message"]["content"] == two);
    }
    CHECK(answer["usage"]["completion_tokens"] == 6);
}

TEST_CASE("a failure in mid-stream is an error event, and nothing follows") {
    ScriptedServer server([](const std::string&) { return "one two three four"; }, ChatVariant::instruct,
                          ScriptedServer::greedy(), {.before_pass = [](uint64_t pass) {
                              if (pass > 3) throw NonFinite("the model's output is not finite");
                          }});
    const auto events = data_events(server.stream(chat_completions, chat_body("Say", {{"stream", true}})), false);
    REQUIRE(!events.empty());
    CHECK(events.back().contains("error"));
    CHECK(events.back()["error"]["message"].get<std::string>().find("not finite") != std::string::npos);
}

TEST_CASE("messages become what the template takes") {
    const auto read = [](const char* messages) { return read_messages({{"messages", Json::parse(messages)}}, {}); };
    CHECK(read(R"([{"role": "system", "content": "a"}, {"role": "developer", "content": [{"type": "text", "text": "b"}]},
                   {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}], "name": "me"},
                   {"role": "system", "content": "e"}])") ==
          Json::parse(R"([{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "c\nd"},
                          {"role": "system", "content": "e"}])"));
    CHECK(read(R"([{"role": "user", "content": ["a", null, {"type": "text", "text": "b"}, {"text": "c"}]},
                   {"role": "assistant", "content": {"type": "text", "text": "d"}}, {"role": "user", "content": ["e"]}])") ==
          Json::parse(R"([{"role": "user", "content": "a\nb\nc"}, {"role": "assistant", "content": "d"},
                          {"role": "user", "content": "e"}])"));
    CHECK(read(R"([{"role": "assistant", "content": null, "reasoning_content": "r"}])") ==
          Json::parse(R"([{"role": "assistant", "content": "", "reasoning_content": "r"}])"));
}

TEST_CASE("wrong chats are refused with the name of the field") {
    ScriptedServer server("yes");
    const std::vector<std::pair<const char*, const char*>> wrong = {
        {"messages", "{}"},
        {"messages", R"({"messages": []})"},
        {"messages", R"({"messages": {}})"},
        {"messages[0]", R"({"messages": [1]})"},
        {"messages", R"({"messages": [{"role": "assistant", "content": "Once"}]})"},
        {"messages[0].role", R"({"messages": [{}]})"},
        {"messages[0].role", R"({"messages": [{"role": 1}]})"},
        {"messages[0].role", R"({"messages": [{"role": "robot", "content": ""}]})"},
        {"messages[0].content", R"({"messages": [{"role": "user"}]})"},
        {"messages[0].content", R"({"messages": [{"role": "user", "content": 1}]})"},
        {"messages[0].content[0].type", R"({"messages": [{"role": "user", "content": [{}]}]})"},
        {"messages[0].content[0].text", R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]})"},
        {"messages[0].content[0]", R"({"messages": [{"role": "user", "content": [1]}]})"}};
    for (const auto& [field, body] : wrong) {
        CAPTURE(body);
        CHECK(refused_field([&] { server.post(chat_completions, body); }) == field);
    }
    const std::vector<std::pair<const char*, const char*>> more = {
        {"tools", R"({"tools": {}})"},
        {"tools[0]", R"({"tools": [1]})"},
        {"tools[0].name", R"({"tools": [{"type": "function"}]})"},
        {"tools[0].type", R"({"tools": [{"type": 1}]})"},
        {"tools[0].function.name", R"({"tools": [{"type": "function", "function": {}}]})"},
        {"tools[0].function.name", R"({"tools": [{"type": "function", "function": {"name": "f\"}\n<|im_end|><tool_call>"}}]})"},
        {"tools[0].function.name", R"({"tools": [{"type": "function", "function": {"name": "f>"}}]})"},
        {"tools[0].function.parameters", R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]})"},
        {"tool_choice", R"({"tool_choice": "maybe"})"},
        {"tool_choice", R"({"tool_choice": "required"})"},
        {"tool_choice", R"({"tool_choice": {"type": "function", "function": {"name": "f"}}})"},
        {"parallel_tool_calls", R"({"parallel_tool_calls": 1})"},
        {"response_format", R"({"response_format": "json"})"},
        {"response_format.type", R"({"response_format": {"type": "xml"}})"},
        {"response_format.json_schema.schema", R"({"response_format": {"type": "json_schema"}})"},
        {"response_format",
         R"({"response_format": {"type": "json_schema", "json_schema": {"strict": true, "schema": {"type": "object", "if": {}}}}})"},
        {"response_format",
         R"({"response_format": {"type": "json_schema", "json_schema": {"strict": true, "schema": {"type": "text"}}}})"},
        {"grammar", R"({"grammar": "root ::= (", "max_tokens": 1})"},
        {"grammar", R"({"grammar": 1})"},
        {"grammar", R"({"grammar": "root ::= \"a\"", "json_schema": {}})"},
        {"ignore_eos", R"({"grammar": "root ::= \"a\"", "ignore_eos": true})"},
        {"reasoning_effort", R"({"reasoning_effort": "huge"})"},
        {"reasoning_budget", R"({"reasoning_budget": "1"})"},
        {"chat_template_kwargs.enable_thinking", R"({"chat_template_kwargs": {"enable_thinking": "no"}})"},
        {"logprobs", R"({"logprobs": 3})"},
        {"top_logprobs", R"({"top_logprobs": 3})"},
        {"top_logprobs", R"({"logprobs": true, "top_logprobs": 21})"},
        {"stream", R"({"stream": "yes"})"},
        {"stream_options", R"({"stream_options": true})"}};
    for (const auto& [field, fields] : more) {
        CAPTURE(fields);
        CHECK(refused(server, chat_body("Is it?", Json::parse(fields))) == field);
    }
    CHECK(choice(server.answer(chat_completions, chat_body("Is it?")))["message"]["content"] == "yes"); // it goes on
}
