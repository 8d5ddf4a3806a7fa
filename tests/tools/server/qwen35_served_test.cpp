// Models with the templates of Qwen3.5 and later, through all three APIs: thinking that the prompt has opened, XML calls,
// efforts, what is kept of earlier thinking, and prompts that a template would refuse.
#include "tests/tools/server/answers.h"
#include "tests/tools/server/chat_answers.h"
#include "tools/server/anthropic/messages.h"
#include "tools/server/openai/responses.h"
#include "tools/server/prompt.h"

using namespace tq;
using namespace tq::server;

namespace {

constexpr ChatVariant all_variants[] = {ChatVariant::qwen35, ChatVariant::qwen35_small, ChatVariant::qwen36, ChatVariant::qwen38};

const std::string xml_call = "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>";
const std::string thinks_and_calls = "<think>\nHm\n</think>\n\nLet me see\n\n" + xml_call;

const Json weather_schema = weather_tools().at(0).at("function").at("parameters");

Json messages_body(const Json& more = Json::object()) {
    Json body = {{"max_tokens", 200},
                 {"thinking", {{"type", "adaptive"}}},
                 {"tools", {{{"name", "weather"}, {"input_schema", weather_schema}}}},
                 {"messages", {{{"role", "user"}, {"content", "How is it?"}}}}};
    body.update(more);
    return body;
}

Json responses_body(const Json& more = Json::object()) {
    Json body = {{"input", "How is it?"},
                 {"reasoning", {{"effort", "high"}}},
                 {"tools", {{{"type", "function"}, {"name", "weather"}, {"parameters", weather_schema}}}}};
    body.update(more);
    return body;
}

Json chats_body(const Json& more = Json::object()) {
    Json body = chat_body("How is it?", {{"tools", weather_tools()}, {"reasoning_effort", "high"}});
    body.update(more);
    return body;
}

std::string prompt_of(ScriptedServer& server, const ChatTask& task) {
    return server.model.tokenizer.decode(chat_prompt(server.service, task).ids, false);
}

std::string prompt_of_chat(ScriptedServer& server, const Json& body) {
    return prompt_of(server, read_chat_task(server.service, body));
}

} // namespace

TEST_CASE("thinking, text and an XML call come by each API, whole and streamed") {
    for (const ChatVariant variant : all_variants) {
        CAPTURE(int(variant));
        ScriptedServer server(thinks_and_calls, variant);
        const Json message = choice(server.answer(chat_completions, chats_body()))["message"];
        CHECK(message["reasoning_content"] == "Hm");
        CHECK(message["content"] == "Let me see");
        CHECK(message["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"Oslo\"}");
        const auto events = data_events(server.stream(chat_completions, chats_body({{"stream", true}})));
        CHECK(joined(events, "reasoning_content") == "Hm");
        CHECK(joined(events, "content") == "Let me see");
        CHECK(choice(events.back())["finish_reason"] == "tool_calls");

        const Json output = server.answer(responses, responses_body()).at("output");
        REQUIRE(output.size() == 3);
        CHECK(output.at(0).at("content").at(0).at("text") == "Hm");
        CHECK(output.at(1).at("content").at(0).at("text") == "Let me see");
        CHECK(output.at(2).at("arguments") == "{\"city\": \"Oslo\"}");
        const auto streamed = read_stream(server.stream(responses, responses_body({{"stream", true}})));
        CHECK(streamed.back().at("response").at("output").size() == 3);

        const Json content = server.answer(messages, messages_body()).at("content");
        REQUIRE(content.size() == 3);
        CHECK(content.at(0).at("thinking") == "Hm");
        CHECK(content.at(1).at("text") == "Let me see");
        CHECK(content.at(2).at("input") == Json{{"city", "Oslo"}});
        const auto blocks = read_stream(server.stream(messages, messages_body({{"stream", true}})));
        CHECK(blocks.at(blocks.size() - 2).at("delta").at("stop_reason") == "tool_use");
    }
}

TEST_CASE("a call within thinking that is not closed is a call, and ends it") {
    ScriptedServer server("<think>\nI need it\n" + xml_call, ChatVariant::qwen36);
    const Json answer = server.answer(chat_completions, chats_body()), message = choice(answer)["message"];
    CHECK(message["reasoning_content"] == "I need it");
    CHECK(message["content"].is_null());
    CHECK(message["tool_calls"].size() == 1);
    CHECK(choice(answer)["finish_reason"] == "tool_calls");
    const uint32_t thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
                   all = answer["usage"]["completion_tokens"];
    CHECK(thought < all);
    CHECK(server.answer(messages, messages_body()).at("content").at(1).at("type") == "tool_use");
    CHECK(server.answer(responses, responses_body()).at("output").at(1).at("type") == "function_call");
    const Json limited = server.answer(chat_completions, chats_body({{"reasoning_budget", 1000}}));
    CHECK(choice(limited)["message"]["tool_calls"].size() == 1);
    const Json stopped = server.answer(chat_completions, chats_body({{"stop", "slo"}})); // also in a call that ended the thinking
    CHECK(choice(stopped)["message"]["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"O");
}

TEST_CASE("a model thinks as its template does, or as a request or the server says") {
    const auto says = [](const std::string& prompt) {
        return prompt.ends_with("</think>\n\n") ? "plain" : "<think>\nHm\n</think>\n\nHi";
    };
    for (const ChatVariant variant : all_variants) {
        ScriptedServer server(says, variant);
        const auto reasoning = [&](const Json& more) {
            return choice(server.answer(chat_completions, chat_body("Hi", more)))["message"].value("reasoning_content", "none");
        };
        CHECK(reasoning(Json::object()) == (variant == ChatVariant::qwen35_small ? "none" : "Hm"));
        CHECK(reasoning({{"enable_thinking", true}}) == "Hm");
        CHECK(reasoning({{"reasoning_effort", "medium"}}) == "Hm");
        CHECK(reasoning({{"reasoning_effort", "none"}}) == "none");
        CHECK(reasoning({{"chat_template_kwargs", {{"enable_thinking", false}}}, {"reasoning_effort", "high"}}) == "none");
        CHECK(reasoning({{"reasoning_budget", 0}}) == "none");
        CHECK(server.answer(messages, messages_body({{"thinking", {{"type", "disabled"}}}})).at("content").size() == 1);
    }
    ServiceOptions options = ScriptedServer::greedy();
    options.think = false;
    ScriptedServer silent(says, ChatVariant::qwen35, options);
    CHECK(choice(silent.answer(chat_completions, chat_body("Hi")))["message"]["content"] == "plain");
}

TEST_CASE("efforts of all APIs are Qwen3.8's: low, medium, and xhigh for all that is more") {
    ScriptedServer server("yes", ChatVariant::qwen38);
    const auto effort_of = [](const std::string& prompt) {
        const std::string begin = "<|im_start|>system\nReasoning effort is set to ";
        return prompt.starts_with(begin) ? prompt.substr(begin.size(), prompt.find('.') - begin.size()) : std::string("none");
    };
    for (const auto& [given, wanted] :
         {std::pair("low", "low"), {"medium", "none"}, {"high", "xhigh"}, {"xhigh", "xhigh"}, {"max", "xhigh"}}) {
        CAPTURE(std::string(given));
        CHECK(effort_of(prompt_of_chat(server, chat_body("Hi", {{"reasoning_effort", given}}))) == wanted);
        CHECK(effort_of(prompt_of_chat(server, chat_body("Hi", {{"chat_template_kwargs", {{"reasoning_effort", given}}}}))) ==
              wanted);
        const Json response = {{"input", "Hi"}, {"reasoning", {{"effort", given}}}};
        CHECK(effort_of(prompt_of(server, responses_api::read(response, Limits()).task)) == wanted);
        const Json message = messages_body({{"output_config", {{"effort", given}}}});
        CHECK(effort_of(prompt_of(server, messages_api::read_prompt(message, Limits()).task)) == wanted);
    }
    CHECK(effort_of(prompt_of_chat(server, chat_body("Hi"))) == "xhigh");
    for (const Json& as_ever : {Json{{"reasoning_effort", "auto"}}, Json{{"reasoning", {{"effort", "default"}}}},
                                Json{{"thinking", {{"type", "adaptive"}}}}, Json{{"reasoning", {{"enabled", true}}}}})
        CHECK(effort_of(prompt_of_chat(server, chat_body("Hi", as_ever))) == "xhigh");
    for (const Json& none : {Json{{"reasoning", {{"enabled", false}}}}, Json{{"thinking", {{"type", "disabled"}}}},
                             Json{{"reasoning", {{"max_tokens", 0}}}}})
        CHECK(effort_of(prompt_of_chat(server, chat_body("Hi", none))) == "none");
    CHECK(effort_of(prompt_of_chat(server, chat_body("Hi", {{"reasoning", {{"effort", "low"}}}}))) == "low");
    CHECK(effort_of(prompt_of(
              server, responses_api::read({{"input", "Hi"}, {"reasoning", {{"effort", "auto"}}}}, Limits()).task)) == "xhigh");
    CHECK(effort_of(prompt_of_chat(server, chat_body("Hi", {{"reasoning_effort", "none"}}))) == "none");
    CHECK(refused(server, chat_body("Hi", {{"chat_template_kwargs", {{"reasoning_effort", "huge"}}}})) ==
          "chat_template_kwargs.reasoning_effort");
    CHECK(refused(server, chat_body("Hi", {{"chat_template_kwargs", {{"preserve_thinking", 1}}}})) ==
          "chat_template_kwargs.preserve_thinking");
    const Json odd = messages_body({{"output_config", {{"effort", "huge"}}}});
    CHECK(messages_api::read_prompt(odd, Limits()).task.ignored.contains("the effort \"huge\""));
}

TEST_CASE("thinking that a client sends back is kept as the template says, by each API") {
    const Json chat = {{{"role", "user"}, {"content", "1+1?"}},
                       {{"role", "assistant"}, {"content", "2"}, {"reasoning_content", "easy"}},
                       {{"role", "user"}, {"content", "2+2?"}}};
    const Json items = {
        {{"role", "user"}, {"content", "1+1?"}},
        {{"type", "reasoning"}, {"summary", Json::array()}, {"content", {{{"type", "reasoning_text"}, {"text", "easy"}}}}},
        {{"role", "assistant"}, {"content", "2"}},
        {{"role", "user"}, {"content", "2+2?"}}};
    const Json blocks = {
        {{"role", "user"}, {"content", "1+1?"}},
        {{"role", "assistant"},
         {"content", {{{"type", "thinking"}, {"thinking", "easy"}, {"signature", ""}}, {{"type", "text"}, {"text", "2"}}}}},
        {{"role", "user"}, {"content", "2+2?"}}};
    for (const ChatVariant variant : all_variants) {
        ScriptedServer server("yes", variant);
        const std::string kept = "<think>\neasy\n</think>\n\n2<|im_end|>", dropped = "assistant\n2<|im_end|>";
        const auto has = [&](const Json& more, const std::string& text) {
            Json body = {{"messages", chat}, {"enable_thinking", true}};
            body.update(more);
            return prompt_of_chat(server, body).find(text) != std::string::npos;
        };
        const bool keeps = variant == ChatVariant::qwen38, may_keep = keeps || variant == ChatVariant::qwen36;
        CHECK(has(Json::object(), keeps ? kept : dropped));
        CHECK(has({{"chat_template_kwargs", {{"preserve_thinking", true}}}}, may_keep ? kept : dropped));
        CHECK(has({{"preserve_thinking", false}}, dropped));
        const std::string prompt = prompt_of_chat(server, {{"messages", chat}, {"reasoning_effort", "low"}});
        CHECK(prompt_of(server, responses_api::read({{"input", items}, {"reasoning", {{"effort", "low"}}}}, Limits()).task) ==
              prompt);
        const Json message = {{"messages", blocks}, {"thinking", {{"type", "adaptive"}}}, {"output_config", {{"effort", "low"}}}};
        CHECK(prompt_of(server, messages_api::read_prompt(message, Limits()).task) == prompt);
    }
}

TEST_CASE("what a template would refuse is answered") {
    for (const ChatVariant variant : all_variants) {
        ScriptedServer server("<think>\nHm\n</think>\n\nfine", variant);
        Json body = chat_body("Hi");
        const auto fine = [&] { return choice(server.answer(chat_completions, body))["message"]["content"] == "fine"; };
        body["messages"].push_back({{"role", "system"}, {"content", "<system-reminder>be quick</system-reminder>"}});
        CHECK(fine());
        CHECK(prompt_of_chat(server, body).find("<|im_start|>user\n<system-reminder>be quick") != std::string::npos);
        body["messages"] = {{{"role", "system"}, {"content", "Say something."}}};
        CHECK(fine());
        for (const char* arguments : {"", "{\"city\": \"Oslo\"}", "{\"city\": \"Os", "[1]"}) {
            const Json call = {{"id", "1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", arguments}}}};
            body["messages"] = {{{"role", "user"}, {"content", "Hi"}},
                                {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                                {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "21"}}};
            CHECK(fine());
        }
    }
}

TEST_CASE("a last message of the assistant is continued behind its thinking") {
    for (const ChatVariant variant : all_variants)
        for (const std::string reasoning : {"", "hm"}) {
            ScriptedServer server("yes", variant);
            Json body = chat_body("Is it?", {{"enable_thinking", true}});
            Json begun = {{"role", "assistant"}, {"content", "It is"}};
            if (!reasoning.empty()) begun["reasoning_content"] = reasoning;
            body["messages"].push_back(begun);
            CHECK(prompt_of_chat(server, body).ends_with("assistant\n<think>\n" + reasoning + "\n</think>\n\nIt is"));
        }
}

TEST_CASE("the next prompt is known where the client sends back what was thought, and where it does not") {
    for (const bool returns : {false, true}) {
        ScriptedServer server("yes", ChatVariant::qwen38);
        Json body = chat_body("1+1?");
        body["messages"].push_back({{"role", "assistant"}, {"content", "2"}});
        if (returns) body["messages"].back()["reasoning_content"] = "easy";
        body["messages"].push_back({{"role", "user"}, {"content", "2+2?"}});
        const ChatTask task = read_chat_task(server.service, body);
        const std::string ahead = server.model.tokenizer.decode(answered_prompt(server.service, task, {"hm", "4", {}}), false);
        body["messages"].push_back({{"role", "assistant"}, {"content", "4"}});
        if (returns) body["messages"].back()["reasoning_content"] = "hm";
        body["messages"].push_back({{"role", "user"}, {"content", "Thanks"}});
        CHECK(prompt_of_chat(server, body).starts_with(ahead));
        CHECK(ahead.ends_with(returns ? "<think>\nhm\n</think>\n\n4<|im_end|>\n" : "<think>\n\n</think>\n\n4<|im_end|>\n"));
    }
}
