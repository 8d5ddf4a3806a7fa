// Constraints of an answer: formats, calls, and limits of the thinking.
#include "tests/tools/server/refused.h"
#include "tests/tools/server/scripted_server.h"
#include "tools/server/prompt.h"

using namespace tq;
using namespace tq::server;

namespace {

const std::string thinks_long = "<think>\none two three four five six seven eight nine ten\n</think>\n\nyes";

Json message(const Json& answer) { return answer.at("choices").at(0).at("message"); }

std::string prompt_text(ScriptedServer& server, const ChatTask& task) {
    return server.model.tokenizer.decode(chat_prompt(server.service, task).ids, false);
}

} // namespace

TEST_CASE("a hybrid model thinks unless it is told not to") {
    ScriptedServer server("yes", ChatVariant::hybrid);
    ChatTask task;
    task.messages = chat_body("Is it?")["messages"];
    CHECK(prompt_text(server, task).ends_with("assistant\n"));
    CHECK(chat_prompt(server.service, task).thinking.possible);
    task.think = false;
    CHECK(prompt_text(server, task).ends_with("<think>\n\n</think>\n\n"));
    CHECK(!chat_prompt(server.service, task).thinking.possible);
    task.think = true;
    task.thinking_budget = 0;
    CHECK(prompt_text(server, task).ends_with("<think>\n\n</think>\n\n"));
}

TEST_CASE("a last message of the assistant is continued") {
    for (const auto& [variant, reasoning, end] : std::vector<std::tuple<ChatVariant, const char*, const char*>>{
             {ChatVariant::instruct, "", "assistant\nIt is"},
             {ChatVariant::hybrid, "", "assistant\n<think>\n\n</think>\n\nIt is"},
             {ChatVariant::hybrid, "hm", "assistant\n<think>\nhm\n</think>\n\nIt is"},
             {ChatVariant::thinking, "hm", "assistant\n<think>\nhm\n</think>\n\nIt is"}}) {
        ScriptedServer server("yes", variant);
        ChatTask task;
        task.messages = chat_body("Is it?")["messages"];
        task.messages.push_back({{"role", "assistant"}, {"content", "It is"}, {"reasoning_content", reasoning}});
        CHECK(prompt_text(server, task).ends_with(end));
        CHECK(!chat_prompt(server.service, task).thinking.possible);
        CHECK(!chat_prompt(server.service, task).thinking.open);
        task.messages.back()["tool_calls"] = Json::array({{{"function", {{"name", "f"}, {"arguments", "{}"}}}}});
        CHECK(refused_field([&] { chat_prompt(server.service, task); }) == "messages");
    }
}

TEST_CASE("the thinking ends where its budget is used up") {
    ScriptedServer server(thinks_long, ChatVariant::hybrid);
    const Json free = server.answer(chat_completions, chat_body("Is it?"));
    const uint32_t thought = free["usage"]["completion_tokens_details"]["reasoning_tokens"];
    const Json answer = server.answer(chat_completions, chat_body("Is it?", {{"reasoning_budget", 5}}));
    CHECK(message(answer)["content"] == "yes");
    CHECK(answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 7); // with both tags
    CHECK(thought > 10);
    const std::string all = message(free)["reasoning_content"], part = message(answer)["reasoning_content"];
    CHECK(all.starts_with(part));
    CHECK(part.size() < all.size());
}

TEST_CASE("a model that always thinks closes it at once where it must not") {
    ScriptedServer server(thinks_long, ChatVariant::thinking);
    const Json answer = server.answer(chat_completions, chat_body("Is it?", {{"reasoning_effort", "none"}}));
    CHECK(!message(answer).contains("reasoning_content"));
    CHECK(message(answer)["content"] == "yes");
}

TEST_CASE("a format begins after the thinking") {
    ScriptedServer server("<think>\nhm\n</think>\n\n{\"a\": 1}", ChatVariant::hybrid);
    const Json format = Json::parse(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}})");
    const Json answer = server.answer(chat_completions, chat_body("Is it?", format));
    CHECK(message(answer)["reasoning_content"] == "hm");
    CHECK(message(answer)["content"] == "{\"a\": 1}");
    const Json limited =
        server.answer(chat_completions, chat_body("Is it?", Json::parse(R"({"grammar": "root ::= \"maybe\""})")));
    CHECK(message(limited)["content"] == "maybe");
}

TEST_CASE("with tools and a format the answer is a call or has the format") {
    const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    const Json more = {{"tools", weather_tools()}, {"response_format", {{"type", "json_object"}}}};
    for (const std::string thinking : {"", "<think>\nhm\n</think>\n\n"}) {
        ScriptedServer calls(thinking + call, ChatVariant::hybrid), says(thinking + "{\"a\": 1}", ChatVariant::hybrid);
        CHECK(message(calls.answer(chat_completions, chat_body("Is it?", more)))["tool_calls"].size() == 1);
        CHECK(message(says.answer(chat_completions, chat_body("Is it?", more)))["content"] == "{\"a\": 1}");
    }
}

TEST_CASE("tool_choice required and a named function force a call") {
    ScriptedServer server("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>");
    for (const Json& choice : std::vector<Json>{"required", {{"type", "function"}, {"function", {{"name", "weather"}}}}}) {
        const Json answer =
            server.answer(chat_completions, chat_body("Hi", {{"tools", weather_tools()}, {"tool_choice", choice}}));
        CHECK(message(answer)["tool_calls"][0]["function"]["name"] == "weather");
        CHECK(answer["choices"][0]["finish_reason"] == "tool_calls");
    }
    Json tools = weather_tools();
    tools[0]["function"]["parameters"]["if"] = Json::object(); // not supported
    Json body = chat_body("Hi", {{"tools", tools}, {"tool_choice", "required"}});
    CHECK(message(server.answer(chat_completions, body))["tool_calls"].size() == 1);
    body["tools"][0]["function"]["strict"] = true;
    CHECK(refused_field([&] { server.post(chat_completions, body.dump()); }) == "tools");
    CHECK(message(server.answer(chat_completions, chat_body("Hi", {{"tools", tools}})))["tool_calls"].size() == 1);
}

TEST_CASE("a call that must come ends the thinking that the prompt has opened, and is checked") {
    const std::string call = "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>";
    for (const std::string closing : {"", "</think>\n\n"})
        for (const char* choice : {"required", "auto"}) {
            CAPTURE(closing);
            CAPTURE(choice);
            ScriptedServer server("hm\n" + closing + call, ChatVariant::qwen35);
            const Json body = chat_body("Hi", {{"tools", weather_tools()}, {"tool_choice", choice}, {"max_tokens", 400}});
            const Json answer = server.answer(chat_completions, body);
            CHECK(message(answer)["reasoning_content"] == "hm");
            REQUIRE(message(answer)["tool_calls"].size() == 1);
            CHECK(message(answer)["tool_calls"][0]["function"]["arguments"] == R"({"city": "Oslo"})");
            CHECK(answer["choices"][0]["finish_reason"] == "tool_calls");
            CHECK(answer["usage"]["completion_tokens"] < 399);
        }
    ScriptedServer wrong("hm\n<tool_call>\n<function=other>\n</function>\n</tool_call>", ChatVariant::qwen35);
    const Json body = chat_body("Hi", {{"tools", weather_tools()}, {"tool_choice", "required"}, {"max_tokens", 400}});
    const Json answer = wrong.answer(chat_completions, body);
    REQUIRE(!message(answer)["tool_calls"].empty());
    CHECK(message(answer)["tool_calls"][0]["function"]["name"] == "weather");
}

TEST_CASE("props say whether the model thinks where a request says nothing") {
    const auto thinks = [](ChatVariant variant, std::optional<bool> option) {
        ServiceOptions options = ScriptedServer::greedy();
        options.think = option;
        ScriptedServer server("yes", variant, options);
        return server.answer(props, {})["thinks_by_default"] == true;
    };
    CHECK(thinks(ChatVariant::qwen35, {}));
    CHECK_FALSE(thinks(ChatVariant::qwen35_small, {}));
    CHECK_FALSE(thinks(ChatVariant::instruct, {}));
    CHECK_FALSE(thinks(ChatVariant::qwen38, false));
    CHECK(thinks(ChatVariant::qwen35_small, true));
}

TEST_CASE("tools that are too large for a grammar only go unchecked") {
    ScriptedServer server("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>");
    Json tools = weather_tools();
    for (int i = 0; i < 40; i++)
        tools[0]["function"]["parameters"]["properties"][fmt::format("p{}", i)] = {{"type", "string"}, {"maxLength", 32768}};
    CHECK(message(server.answer(chat_completions, chat_body("Hi", {{"tools", tools}})))["tool_calls"].size() == 1);
    Json body = chat_body("Hi", {{"tools", tools}, {"tool_choice", "required"}});
    CHECK(message(server.answer(chat_completions, body))["tool_calls"].size() == 1);
    body["tools"][0]["function"]["strict"] = true;
    CHECK(refused_field([&] { server.post(chat_completions, body.dump()); }) == "tools");
}

TEST_CASE("the next prompt begins with the answer without its thinking") {
    ScriptedServer server("yes", ChatVariant::hybrid);
    ChatTask task;
    task.messages = chat_body("Is it?")["messages"];
    ParsedAnswer answer{"a long thinking", "yes", {}};
    const auto ids = answered_prompt(server.service, task, answer);
    task.messages.push_back({{"role", "assistant"}, {"content", "yes"}});
    task.messages.push_back({{"role", "user"}, {"content", "Why?"}});
    const auto next = chat_prompt(server.service, task).ids;
    REQUIRE(next.size() > ids.size());
    CHECK(std::equal(ids.begin(), ids.end(), next.begin()));
    CHECK(server.model.tokenizer.decode(ids, false) ==
          "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n");
}
