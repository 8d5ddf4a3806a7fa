// Calls that a model writes wrongly: the same answer through all three APIs, whole and streamed, is the same calls and the same
// text, and never has the markup of calls. The model spells the tags with tokens of plain text, as one without tokens for them
// does: no grammar keeps it from mistakes then.
#include "tests/tools/server/answers.h"
#include "tests/tools/server/chat_answers.h"

using namespace tq;
using namespace tq::server;

namespace {

// A client's result: the text, and "name arguments" of each call.
struct Got {
    std::string text;
    std::vector<std::string> calls;
    std::string finish;
};

Got chat_got(ScriptedServer& server, bool streamed) {
    const Json body = chat_body("Weather?", {{"tools", weather_tools()}, {"stream", streamed}});
    Got got;
    if (!streamed) {
        const Json answer = server.answer(chat_completions, body), message = choice(answer)["message"];
        if (!message["content"].is_null()) got.text = message["content"];
        for (const Json& call : message.value("tool_calls", Json::array()))
            got.calls.push_back(call["function"]["name"].get<std::string>() + " " +
                                call["function"]["arguments"].get<std::string>());
        got.finish = choice(answer)["finish_reason"];
        return got;
    }
    const auto events = data_events(server.stream(chat_completions, body));
    got.text = joined(events, "content");
    for (const Json& event : events) {
        const Json delta = choice(event)["delta"];
        if (!delta.contains("tool_calls")) continue;
        const Json& function = delta["tool_calls"][0]["function"];
        if (function.contains("name")) got.calls.push_back(function["name"].get<std::string>() + " ");
        got.calls.back() += function["arguments"].get<std::string>();
    }
    got.finish = choice(events.back())["finish_reason"];
    return got;
}

Got response_got(ScriptedServer& server, bool streamed) {
    Json tool = weather_tools()[0]["function"];
    tool["type"] = "function";
    const Json body = {{"input", "Weather?"}, {"tools", {tool}}, {"stream", streamed}};
    Got got;
    Json response;
    if (streamed) {
        std::string deltas;
        for (const Json& event : read_stream(server.stream(responses, body))) {
            if (event["type"] == "response.function_call_arguments.delta") deltas += event["delta"];
            if (event["type"] == "response.function_call_arguments.done") CHECK(event["arguments"] == std::exchange(deltas, {}));
            if (event.contains("response")) response = event["response"];
        }
    } else {
        response = server.answer(responses, body);
    }
    for (const Json& item : response["output"])
        if (item["type"] == "message")
            got.text += item["content"][0]["text"];
        else
            got.calls.push_back(item["name"].get<std::string>() + " " + item["arguments"].get<std::string>());
    return got;
}

// The arguments of an answer that is not streamed are an object, whose JSON is taken for them.
Got message_got(ScriptedServer& server, bool streamed) {
    Json body = chat_body("Weather?", {{"max_tokens", 200}, {"stream", streamed}});
    body["tools"] = {{{"name", "weather"}, {"input_schema", weather_tools()[0]["function"]["parameters"]}}};
    Got got;
    if (!streamed) {
        const Json message = server.answer(messages, body);
        for (const Json& block : message["content"])
            if (block["type"] == "text")
                got.text += block["text"];
            else
                got.calls.push_back(block["name"].get<std::string>() + " " + block["input"].dump());
        got.finish = message["stop_reason"];
        return got;
    }
    for (const Json& event : read_stream(server.stream(messages, body))) {
        if (event["type"] == "content_block_start" && event["content_block"]["type"] == "tool_use")
            got.calls.push_back(event["content_block"]["name"].get<std::string>() + " ");
        if (event["type"] == "content_block_delta" && event["delta"]["type"] == "text_delta") got.text += event["delta"]["text"];
        if (event["type"] == "content_block_delta" && event["delta"]["type"] == "input_json_delta")
            got.calls.back() += event["delta"]["partial_json"];
        if (event["type"] == "message_delta") got.finish = event["delta"]["stop_reason"];
    }
    return got;
}

struct Broken {
    const char *said, *text;
    std::vector<std::string> arguments; // of the calls
    std::vector<std::string> inputs;    // objects of what came whole; the arguments where they are valid
    ChatVariant variant = ChatVariant::instruct;
};

const Broken table[] = {
    {"Well.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": Paris}}\n</tool_call>",
     "Well.",
     {"{\"city\": Paris}"},
     {"{}"}},
    {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 2, \"city\": Paris}}\n</tool_call>",
     "",
     {"{\"days\": 2, \"city\": Paris}"},
     {"{\"days\":2}"}},
    {"<tool_call>\n{\"arguments\": {\"city\": Paris}, \"name\": \"weather\"}\n</tool_call>", "", {"{\"city\": Paris}"}, {"{}"}},
    {"<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>", "", {"[1]"}, {"{}"}},
    {"<tool_call>{\"name\": \"weather\", \"arguments\": \"Paris\"}</tool_call>", "", {"Paris"}, {"{}"}},
    {"<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}, oops</tool_call> then",
     " then",
     {"{\"city\": \"Oslo\"}"},
     {"{\"city\":\"Oslo\"}"}},
    // The model ends within the call.
    {"Well.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Os", "Well.", {"{\"city\": \"Os"}, {"{}"}},
    {"Well.\n<tool_call>\n{\"name\": \"weather\", \"argu", "Well.", {}, {}},
    {"Well.\n<tool_call>", "Well.", {}, {}},
    {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}",
     "",
     {"{\"city\": \"Oslo\"}"},
     {"{\"city\":\"Oslo\"}"}},
    // Tags that are missing, others, too many.
    {"{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
     "",
     {"{\"city\": \"Oslo\"}"},
     {"{\"city\":\"Oslo\"}"}},
    {"Well.\n{\"name\": \"weather\", \"arguments\": {\"city\": Paris}}\n</tool_call>", "Well.", {"{\"city\": Paris}"}, {"{}"}},
    {"<tools>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tools>",
     "",
     {"{\"city\": \"Oslo\"}"},
     {"{\"city\":\"Oslo\"}"}},
    {"Well.\n<tools>{\"name\": \"weather\", \"arguments\": {\"city\": Paris}}</tools>", "Well.", {"{\"city\": Paris}"}, {"{}"}},
    {"```xml\n<tools>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tools>\n```",
     "",
     {"{\"city\": \"Oslo\"}"},
     {"{\"city\":\"Oslo\"}"}},
    {"<tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n</tool_call>",
     "",
     {"{\"city\": \"Oslo\"}"},
     {"{\"city\":\"Oslo\"}"}},
    {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n{\"name\": \"weather\", \"arguments\": "
     "{\"city\": "
     "Paris}}\n</tool_call>",
     "",
     {"{\"city\": \"Oslo\"}", "{\"city\": Paris}"},
     {"{\"city\":\"Oslo\"}", "{}"}},
    // Text without a call stays text.
    {"Sunny.</tool_call> Really.", "Sunny. Really.", {}, {}},
    {"<tool_call>\nI cannot.\n</tool_call>", "I cannot.", {}, {}},
    {"The tag <tools> lists them.", "The tag <tools> lists them.", {}, {}},
    {"<tool_call>\n<function=weather>\noops\n</function>\n</tool_call>", "", {"{"}, {"{}"}, ChatVariant::coder},
    {"<tool_call>\n<function=weather>\n<parameter=city>\nOs", "", {"{\"city\": \"Os"}, {"{}"}, ChatVariant::coder},
    {"Well.\n<tool_call>\n<function=", "Well.", {}, {}, ChatVariant::coder},
    {"<tool_call>\n<function=>\n<parameter=city>x</parameter>\n</tool_call>", "x", {}, {}, ChatVariant::coder},
};

std::vector<std::string> calls_of(const std::vector<std::string>& arguments) {
    std::vector<std::string> calls;
    for (const std::string& one : arguments) calls.push_back("weather " + one);
    return calls;
}

} // namespace

TEST_CASE("a call that the model breaks is a call with what can be read of it, in all APIs, streamed or not") {
    for (const Broken& row : table) {
        CAPTURE(std::string(row.said));
        ScriptedServer server([&](const std::string&) { return row.said; }, row.variant, ScriptedServer::greedy(), {}, false);
        for (const bool streamed : {false, true}) {
            CAPTURE(streamed);
            const Got chat = chat_got(server, streamed), response = response_got(server, streamed),
                      message = message_got(server, streamed);
            CHECK(chat.text == row.text);
            CHECK(response.text == row.text);
            CHECK(message.text == row.text);
            CHECK(chat.calls == calls_of(row.arguments));
            CHECK(response.calls == calls_of(row.arguments));
            CHECK(message.calls == calls_of(streamed ? row.arguments : row.inputs));
            CHECK(chat.finish == (row.arguments.empty() ? "stop" : "tool_calls"));
            CHECK(message.finish == (row.arguments.empty() ? "end_turn" : "tool_use"));
        }
    }
}

TEST_CASE("arguments are an object, whatever a tool's schema says") {
    for (const char* parameters : {R"({"type": "array", "items": {"type": "integer"}})", R"({"type": ["array", "object"]})",
                                   R"({"properties": {"city": {"type": "string"}}})"}) {
        CAPTURE(parameters);
        ScriptedServer server("[1, 2]");
        Json tools = weather_tools();
        tools[0]["function"]["parameters"] = Json::parse(parameters);
        const Json answer = server.answer(
            chat_completions, chat_body("Weather?", {{"tools", tools}, {"tool_choice", "required"}, {"max_tokens", 60}}));
        const Json message = choice(answer)["message"];
        CHECK((message["content"].is_null() || message["content"] == ""));
        REQUIRE(message.contains("tool_calls"));
        CHECK(message["tool_calls"][0]["function"]["arguments"].get<std::string>().starts_with("{"));
    }
}
