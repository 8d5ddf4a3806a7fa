#include "tests/tools/server/refused.h"
#include "tools/server/anthropic/messages.h"

using namespace tq::server;
using messages_api::Request;

namespace {

const Json hello = {{{"role", "user"}, {"content", "Hello"}}};

Request read(Json body) {
    if (!body.contains("messages")) body["messages"] = hello;
    if (!body.contains("max_tokens")) body["max_tokens"] = 100;
    return messages_api::read(body, Limits());
}

Json messages(Json body) { return read(std::move(body)).task.messages; }

std::string refused(Json body) {
    return refused_field([&] { read(body); });
}

Json text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

const Json tools = {{{"name", "weather"}, {"description", "Tells it"}, {"input_schema", {{"type", "object"}}}}};

} // namespace

TEST_CASE("a message is a text or blocks of text") {
    CHECK(messages({{"messages", hello}}) == hello);
    CHECK(messages({{"messages", {{{"role", "user"}, {"content", {text("Hello")}}}}}}) == hello);
    CHECK(refused({{"messages", Json::array()}}) == "messages");
    CHECK(refused({{"messages", nullptr}}) == "messages");
    CHECK(refused({{"messages", {{{"role", "user"}}}}}) == "messages[0].content");
    CHECK(refused({{"messages", {{{"role", "tool"}, {"content", "x"}}}}}) == "messages[0].role");
}

TEST_CASE("a thread, which is not stored, can begin but not go on: the library then sends the whole conversation") {
    CHECK(messages({{"thread", {{"type", "create"}}}}) == hello);
    try {
        read({{"thread", {{"type", "continue"}, {"previous_message_id", "msg_1"}}}});
        FAIL("it went on");
    } catch (const ApiError& error) {
        CHECK(error.status == 400);
        const Json details = Json::parse(error_body(error, Envelope::anthropic)).at("error").at("details");
        CHECK(details == Json{{"error_code", "thread_unsupported_request"}, {"unsupported", {"thread"}}});
    }
    CHECK(refused({{"thread", "continue"}}) == "thread");
}

TEST_CASE("max_tokens is required, but not to count a prompt") {
    const Json body = {{"messages", hello}};
    CHECK(refused_field([&] { messages_api::read(body, Limits()); }) == "max_tokens");
    CHECK(refused({{"max_tokens", 0}}) == "max_tokens");
    CHECK(messages_api::read_prompt(body, Limits()).task.messages == hello);
    CHECK(read({{"max_tokens", 7}}).task.sampling.max_tokens == 7u);
}

TEST_CASE("trip-wire 8: the billing header, new with every request, is not in the prompt") {
    const std::string header = "x-anthropic-billing-header: cc_version=2.0; cc_entrypoint=cli; cch=1a2b3;";
    const Json system = {{"role", "system"}, {"content", "You are Claude Code\n\nBe brief"}};
    Json blocks = {text(header), text("You are Claude Code"), text("Be brief")};
    blocks[1]["cache_control"] = {{"type", "ephemeral"}};
    CHECK(messages({{"system", blocks}}).at(0) == system);
    CHECK(messages({{"system", header + "\nYou are Claude Code\n\nBe brief"}}).at(0) == system);
    CHECK(messages({{"system", {text(header)}}}) == hello);
    CHECK(messages({{"system", "X-Anthropic-Billing-Header: cch=1;\nYou are Claude Code\n\nBe brief"}}).at(0) == system);
    CHECK(messages({{"system", "The x-anthropic-billing-header: is a header"}}).at(0).at("content") ==
          "The x-anthropic-billing-header: is a header");
}

TEST_CASE("trip-wire 8: thinking, unknown blocks of other models, fields and betas are tolerated") {
    const Json answer = {{{"type", "thinking"}, {"thinking", "Hm"}, {"signature", "EqQB"}},
                         {{"type", "redacted_thinking"}, {"data", "Em8B"}},
                         {{"type", "server_tool_use"}, {"id", "s"}, {"name", "web_search"}, {"input", Json::object()}},
                         {{"type", "web_search_tool_result"}, {"tool_use_id", "s"}, {"content", Json::array()}},
                         text("Hi")};
    const Json turns = messages({{"messages",
                                  {{{"role", "user"}, {"content", "Hello"}},
                                   {{"role", "assistant"}, {"content", answer}},
                                   {{"role", "user"}, {"content", "More"}}}},
                                 {"betas", {"x-2027"}},
                                 {"context_management", {{"edits", Json::array()}}},
                                 {"metadata", {{"user_id", "u"}}},
                                 {"output_config", {{"effort", "high"}}}});
    CHECK(turns.at(1) == Json{{"role", "assistant"}, {"content", "Hi"}, {"reasoning_content", "Hm"}});
}

TEST_CASE("trip-wire 8: system turns within a conversation stay where they are") {
    const Json turns = messages({{"system", "A"},
                                 {"messages",
                                  {{{"role", "system"}, {"content", "B"}},
                                   {{"role", "user"}, {"content", "Hello"}},
                                   {{"role", "developer"}, {"content", {text("C")}}}}}});
    CHECK(turns == Json{{{"role", "system"}, {"content", "A\n\nB"}},
                        {{"role", "user"}, {"content", "Hello"}},
                        {{"role", "system"}, {"content", "C"}}});
}

TEST_CASE("results of tools become turns of tools, then the text a user's") {
    const Json calls = {{{"type", "tool_use"}, {"id", "t1"}, {"name", "weather"}, {"input", {{"city", "Oslo"}}}},
                        {{"type", "tool_use"}, {"id", "t2"}, {"name", "weather"}, {"input", Json::object()}}};
    const Json results = {
        {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {text("Sunny"), {{"type", "image"}, {"source", "x"}}}}},
        {{"type", "tool_result"}, {"tool_use_id", "t2"}, {"content", "no city"}, {"is_error", true}},
        {{"type", "tool_result"}, {"tool_use_id", "t3"}},
        text("And"),
        text("now?")};
    const Json turns = messages({{"messages",
                                  {{{"role", "user"}, {"content", "Hello"}},
                                   {{"role", "assistant"}, {"content", calls}},
                                   {{"role", "user"}, {"content", results}}}}});
    REQUIRE(turns.size() == 6);
    CHECK(turns.at(1).at("content") == "");
    CHECK(turns.at(1).at("tool_calls").at(0) ==
          Json{{"id", "t1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", {{"city", "Oslo"}}}}}});
    CHECK(turns.at(2) ==
          Json{{"role", "tool"}, {"tool_call_id", "t1"}, {"content", "Sunny\n[image is left out: the model reads only text]"}});
    CHECK(turns.at(3).at("content") == "Error: no city");
    CHECK(turns.at(4).at("content") == "");
    CHECK(turns.at(5) == Json{{"role", "user"}, {"content", "And\nnow?"}});
}

TEST_CASE("a user's message of results alone adds no empty turn") {
    const Json result = {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", "Sunny"}};
    const Json turns = messages({{"messages", {{{"role", "user"}, {"content", {result}}}}}});
    CHECK(turns.size() == 1);
    CHECK(turns.at(0).at("role") == "tool");
}

TEST_CASE("trip-wire 6: a replayed call whose input is no object is shown as it is") {
    for (const Json& input : {Json("{\"x\": "), Json::array(), Json(1)}) {
        const Json call = {{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", input}};
        const Json turns = messages({{"messages", {{{"role", "assistant"}, {"content", {call}}}}}});
        const std::string shown = input.is_string() ? input.get<std::string>() : input.dump();
        CHECK(turns.at(0).at("tool_calls").at(0).at("function").at("arguments") == shown);
    }
}

TEST_CASE("images and documents are left out, an answer that is begun is not") {
    for (const char* type : {"image", "document"})
        CHECK(messages({{"messages", {{{"role", "user"}, {"content", {{{"type", type}, {"source", Json::object()}}}}}}}}).at(0) ==
              Json{{"role", "user"}, {"content", fmt::format("[{} is left out: the model reads only text]", type)}});
    const Json begun = {{{"role", "user"}, {"content", "Hello"}}, {{"role", "assistant"}, {"content", "{"}}};
    CHECK(messages({{"messages", begun}}) == begun);
}

TEST_CASE("tools that run on Anthropic's servers are skipped") {
    Json mixed = tools;
    mixed.push_back({{"type", "web_search_20250305"}, {"name", "web_search"}, {"max_uses", 5}});
    mixed.push_back({{"type", "custom"}, {"name", "plain"}, {"input_schema", {{"type", "object"}}}});
    const Json read_tools = read({{"tools", mixed}}).task.tools;
    REQUIRE(read_tools.size() == 2);
    CHECK(read_tools.at(0) ==
          Json{{"type", "function"},
               {"function", {{"name", "weather"}, {"description", "Tells it"}, {"parameters", {{"type", "object"}}}}}});
    CHECK(read_tools.at(1).at("function").at("name") == "plain");
    CHECK(refused({{"tools", {{{"name", "f"}}}}}) == "tools[0].input_schema");
}

TEST_CASE("the choice of a tool, and calls at once") {
    const auto choose = [&](const Json& choice) { return read({{"tools", tools}, {"tool_choice", choice}}).task; };
    CHECK(choose({{"type", "auto"}}).tool_choice == ToolChoice::automatic);
    CHECK(choose({{"type", "any"}}).tool_choice == ToolChoice::required);
    CHECK(choose({{"type", "none"}}).tool_choice == ToolChoice::none);
    CHECK(choose({{"type", "tool"}, {"name", "weather"}}).tool_name == "weather");
    CHECK(choose(nullptr).parallel_tool_calls);
    CHECK(!choose({{"type", "auto"}, {"disable_parallel_tool_use", true}}).parallel_tool_calls);
    CHECK(refused({{"tools", tools}, {"tool_choice", {{"type", "tool"}, {"name", "other"}}}}) == "tool_choice");
    CHECK(refused({{"tools", tools}, {"tool_choice", {{"type", "some"}}}}) == "tool_choice.type");
    CHECK(refused({{"tool_choice", {{"type", "any"}}}}) == "tool_choice");
}

TEST_CASE("thinking, its budget, and where an answer ends") {
    const Request enabled = read({{"thinking", {{"type", "enabled"}, {"budget_tokens", 2048}}}});
    CHECK(enabled.task.think == true);
    CHECK(enabled.task.thinking_budget == 2048u);
    CHECK(read({{"thinking", {{"type", "adaptive"}}}}).task.think == true);
    CHECK(read({{"thinking", {{"type", "disabled"}}}}).task.think == false);
    CHECK(!read(Json::object()).task.think);
    CHECK(refused({{"thinking", {{"type", "maybe"}}}}) == "thinking.type");
    CHECK(read({{"stop_sequences", {"END", ""}}}).task.sampling.stop == std::vector<std::string>{"END"});
    CHECK(refused({{"stop_sequences", {1}}}) == "stop_sequences[0]");
    const Json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
    CHECK(read({{"output_config", {{"format", format}}}}).task.format.kind == Format::Kind::json_schema);
    CHECK(read({{"output_format", format}}).task.format.kind == Format::Kind::json_schema); // of the beta
}
