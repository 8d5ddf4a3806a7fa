// Calls of tools and formats in chats, as clients see them.
#include "tests/tools/server/chat_answers.h"

using namespace tq;
using namespace tq::server;

TEST_CASE("a named function is called once, required ones perhaps several times") {
    for (const char* name : {"named", "required", "one"}) {
        ScriptedServer server(weather_text + "\n" + weather_text);
        Json body = chat_body("Weather?", {{"tools", weather_tools()}, {"tool_choice", "required"}});
        if (name != std::string("required"))
            body["tool_choice"] = Json{{"type", "function"}, {"function", {{"name", "weather"}}}};
        if (name == std::string("one"))
            body["tool_choice"] = Json{{"type", "function"}, {"name", "weather"}}; // of the responses API
        const Json answer = server.answer(chat_completions, body);
        CHECK(choice(answer)["message"]["tool_calls"].size() == (name == std::string("required") ? 2 : 1));
        CHECK(choice(answer)["finish_reason"] == "tool_calls");
    }
}

TEST_CASE("allowed_tools leave out the others, and may ask for a call") {
    ScriptedServer server(weather_text);
    Json tools = weather_tools();
    tools.push_back({{"type", "function"}, {"function", {{"name", "other"}}}});
    const Json allowed = {{"mode", "required"}, {"tools", {{{"type", "function"}, {"function", {{"name", "weather"}}}}}}};
    const Json choice_of = {{"type", "allowed_tools"}, {"allowed_tools", allowed}};
    const ChatTask task = read_chat_task(server.service, chat_body("x", {{"tools", tools}, {"tool_choice", choice_of}}));
    CHECK(task.tool_choice == ToolChoice::required);
    CHECK(task.tools.size() == 1);
}

TEST_CASE("a call that is cut off is a beginning of its arguments, streamed or not, and no markup") {
    for (const ChatVariant variant : {ChatVariant::instruct, ChatVariant::coder}) {
        const std::string said =
            variant == ChatVariant::coder
                ? "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
                : weather_text;
        ScriptedServer server("Well.\n" + said + "\n" + said, variant);
        const size_t all = server.model.tokenizer.encode("Well.\n" + said + "\n" + said).size();
        for (size_t tokens = 1; tokens < all; ++tokens) {
            CAPTURE(tokens);
            const Json more = {{"tools", weather_tools()}, {"max_tokens", tokens}};
            const Json answer = server.answer(chat_completions, chat_body("Weather?", more)), message = choice(answer)["message"];
            CHECK(choice(answer)["finish_reason"] == "length");
            Json streamed_body = chat_body("Weather?", more);
            streamed_body["stream"] = true;
            const auto events = data_events(server.stream(chat_completions, streamed_body));
            const std::string content = message["content"].is_null() ? "" : message["content"].get<std::string>();
            CHECK(joined(events, "content") == content);
            CHECK(content.find('<') == content.npos);
            std::vector<std::string> arguments;
            for (const Json& event : events) {
                const Json delta = choice(event)["delta"];
                if (!delta.contains("tool_calls")) continue;
                arguments.resize(delta["tool_calls"][0]["index"].get<size_t>() + 1);
                arguments.back() += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
            }
            const Json calls = message.contains("tool_calls") ? message["tool_calls"] : Json::array();
            REQUIRE(calls.size() == arguments.size());
            for (size_t i = 0; i < calls.size(); ++i) {
                CHECK(calls[i]["function"]["arguments"] == arguments[i]);
                CHECK(std::string("{\"city\": \"Oslo\"}").starts_with(arguments[i]));
            }
        }
    }
}

TEST_CASE("a stop text within a call cuts it off, too") {
    ScriptedServer server(weather_text);
    const Json message =
        choice(server.answer(chat_completions, chat_body("Weather?", {{"tools", weather_tools()}, {"stop", "slo"}})))["message"];
    CHECK(message["content"].is_null());
    CHECK(message["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"O");
}

TEST_CASE("an answer that is a JSON object with a tool's name and arguments is a call, and nothing else is") {
    std::string before;
    const auto ask = [&](const std::string& said, const Json& more = Json::object()) {
        ScriptedServer server(said);
        Json body = chat_body("Weather?", {{"tools", weather_tools()}});
        body.update(more);
        const Json message = choice(server.answer(chat_completions, body))["message"];
        before = message["content"].is_null() ? "" : message["content"].get<std::string>();
        body["stream"] = true;
        std::string arguments;
        const auto events = data_events(server.stream(chat_completions, body));
        for (const Json& event : events)
            if (choice(event)["delta"].contains("tool_calls"))
                arguments += choice(event)["delta"]["tool_calls"][0]["function"]["arguments"].get<std::string>();
        CHECK(joined(events, "content") == (message["content"].is_null() ? "" : message["content"].get<std::string>()));
        const std::string whole =
            message.contains("tool_calls") ? message["tool_calls"][0]["function"]["arguments"].get<std::string>() : "";
        CHECK(arguments == whole);
        CHECK(choice(events.back())["finish_reason"] == (more.contains("max_tokens") ? "length"
                                                         : whole.empty()             ? "stop"
                                                                                     : "tool_calls"));
        return whole.empty() ? "text: " + message["content"].get<std::string>() : whole;
    };
    CHECK(ask(R"({"name": "weather", "arguments": {"city": "Oslo"}})") == R"({"city": "Oslo"})");
    CHECK(ask("\n{\n  \"arguments\" : {\"city\": \"}\"},\n \"name\": \"weather\"}\n") == R"({"city": "}"})");
    CHECK(ask("```json\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n```\n") == R"({"city": "Oslo"})");
    CHECK(before.empty());
    for (const char* form :
         {"Let me see.\n\n```json\n{}\n```", "Let me see.\n```\n{}\n```\n\n", "Let me see. ```JSON {}```", "Let me see.\n{}"}) {
        CAPTURE(form);
        std::string said = form;
        said.replace(said.find("{}"), 2, R"({"name": "weather", "arguments": {"city": "Oslo"}})");
        CHECK(ask(said) == R"({"city": "Oslo"})");
        CHECK(before == "Let me see.");
    }
    for (const char* text :
         {R"({"name": "other", "arguments": {"city": "Oslo"}})", R"({"name": "weather"})", R"({"city": "Oslo"})", "{}", "{",
          R"({"name": "weather", "arguments": {}} and more)", R"({"name": "weather", "arguments": 1})",
          R"(See {"name": "weather", "arguments": {}})", R"({"name": "weather", "arguments": {}}{})",
          R"({"name": "weather", "arguments": {}}})", "```json\n{\"name\": \"weather\", \"arguments\": {}}\n``` There.",
          "```js\n{\"name\": \"weather\"", "`", "``` {"}) {
        CAPTURE(text);
        CHECK(ask(text) == std::string("text: ") + text);
    }
    CHECK(ask(R"({"name": "weather", "arguments": {}})", {{"tool_choice", "none"}}).starts_with("text: "));
    const std::string call = R"({"name": "weather", "arguments": {"city": "Oslo"}})"; // cut off within its arguments
    const size_t tokens = ScriptedServer("").model.tokenizer.encode(call).size();
    CHECK(ask(call, {{"max_tokens", tokens - 1}}).starts_with("{\"city\": \"Oslo\""));
}

TEST_CASE("tools that are not strict never fail a request, strict ones do where a grammar cannot say their schema") {
    ScriptedServer server(weather_text);
    Json tools = weather_tools();
    Json other = {{"name", "tags"},
                  {"parameters", {{"type", "object"}, {"properties", {{"tags", {{"type", "array"}, {"uniqueItems", true}}}}}}}};
    tools.push_back({{"type", "function"}, {"function", other}});
    for (const char* how : {"required", "auto"}) {
        const Json answer = server.answer(chat_completions, chat_body("Weather?", {{"tools", tools}, {"tool_choice", how}}));
        CHECK(choice(answer)["message"]["tool_calls"].size() == 1);
    }
    tools[1]["function"]["parameters"] = {{"type", "nonsense"}};
    server.answer(chat_completions, chat_body("Weather?", {{"tools", tools}, {"tool_choice", "required"}}));
    tools[1]["function"] = other;
    tools[1]["function"]["strict"] = true;
    CHECK(refused(server, chat_body("Weather?", {{"tools", tools}, {"tool_choice", "required"}})) == "tools");
    server.answer(chat_completions, chat_body("Weather?", {{"tools", tools}}));
}

TEST_CASE("a schema that is not strict is followed as far as a grammar can say it; llama.cpp's own form is known") {
    ScriptedServer server("{\"a\": 1}");
    const Json schema =
        Json::parse(R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "if": {}, "not": {}})");
    for (const Json& format :
         {Json{{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}},
          Json{{"type", "json_schema"}, {"schema", schema}}, Json{{"type", "json_object"}, {"schema", schema}}})
        CHECK(choice(server.answer(chat_completions, chat_body("x", {{"response_format", format}})))["message"]["content"] ==
              "{\"a\": 1}");
    Json strict = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}};
    CHECK(refused(server, chat_body("x", {{"response_format", strict}})) == "response_format");
}

TEST_CASE("a format that is not strict never fails for its schema: the log says what is not followed, and a strict one names its "
          "field") {
    std::vector<std::string> lines;
    ServiceOptions options = ScriptedServer::greedy();
    options.log = [&](const std::string& line) { lines.push_back(line); };
    ScriptedServer server("{\"a\": 1}", ChatVariant::instruct, options);
    Json values = Json::array(), choices = Json::array();
    for (int i = 0; i < 150'000; ++i) values.push_back(fmt::format("value-{}", i));
    for (int i = 0; i < 5000; ++i) choices.push_back({{"type", "integer"}, {"minimum", i}});
    for (const Json& wrong : std::vector<Json>{{{"type", "any"}},
                                               {{"$ref", "#/nowhere"}},
                                               {{"enum", Json::array()}},
                                               {{"enum", values}},
                                               {{"minItems", 1000000}},
                                               {{"pattern", "^[a-z]{100000}$"}},
                                               {{"anyOf", choices}}})
        for (const bool is_root : {false, true}) {
            const Json schema =
                is_root ? wrong : Json{{"type", "object"}, {"properties", {{"b", wrong}}}, {"additionalProperties", true}};
            Json format = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}};
            CAPTURE(wrong.dump().substr(0, 100));
            CAPTURE(is_root);
            server.answer(chat_completions, chat_body("x", {{"response_format", format}, {"max_tokens", 8}}));
            format["json_schema"]["strict"] = true;
            CHECK(refused(server, chat_body("x", {{"response_format", format}})) == "response_format");
        }
    for (const char* said : {"'type' must be", "leads nowhere", "'enum' has no value", "more than 1048576 bytes",
                             "'minItems' is too large", "a repetition of more than"})
        CHECK(std::ranges::count_if(lines, [&](const std::string& line) { return line.find(said) != line.npos; }) >= 1);
    std::string ways = "root ::= \"a\"";
    for (int i = 0; i < 5000; ++i) ways += " | [a-z]";
    CHECK(refused(server, chat_body("x", {{"grammar", ways}})) == "grammar");
}

TEST_CASE("a custom tool takes a text, streamed or not; tools that run on other servers are left out") {
    ScriptedServer server("<tool_call>\n{\"name\": \"note\", \"arguments\": {\"input\": \"Ol\\u00e9 \\\"x\\\"\"}}\n</tool_call>");
    const Json note = {{"type", "custom"}, {"custom", {{"name", "note"}, {"description", "Writes down"}}}};
    const Json body = chat_body("Note it", {{"tools", {note, {{"type", "web_search"}}}}});
    const Json message = choice(server.answer(chat_completions, body))["message"];
    CHECK(message["tool_calls"][0]["type"] == "custom");
    CHECK(message["tool_calls"][0]["custom"] == Json{{"name", "note"}, {"input", "Olé \"x\""}});
    Json streamed = body;
    streamed["stream"] = true;
    std::string name, input;
    for (const Json& event : data_events(server.stream(chat_completions, streamed))) {
        const Json delta = choice(event)["delta"];
        if (!delta.contains("tool_calls")) continue;
        name += delta["tool_calls"][0]["custom"].value("name", "");
        input += delta["tool_calls"][0]["custom"].value("input", "");
    }
    CHECK(name == "note");
    CHECK(input == "Olé \"x\"");
    Json history = chat_body("Note it");
    history["messages"].push_back(message);
    history["messages"].push_back({{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "noted"}});
    server.answer(chat_completions, history);
    Json flat = weather_tools()[0]["function"];
    flat["type"] = "function";
    ScriptedServer weather(weather_text);
    CHECK(choice(weather.answer(chat_completions, chat_body("Weather?", {{"tools", {flat}}})))["message"].contains("tool_calls"));
    CHECK(refused(server, chat_body("x", {{"tools", {{{"type", "web_search"}}}}, {"tool_choice", "required"}})) == "tool_choice");
    CHECK(refused(server, chat_body("x", {{"tools", {{{"type", "custom"}}}}})) == "tools[0].name");
}
