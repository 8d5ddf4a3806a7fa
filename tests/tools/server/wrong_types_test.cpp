// Each value of a request, at every depth, is replaced by values of every type: nothing but success or a 400 that names a field
// may come of it, and what is read must be fit for the template.
#include "model/text/chat_template.h"
#include "tests/tools/server/refused.h"
#include "tools/server/anthropic/messages.h"
#include "tools/server/openai/responses.h"

using namespace tq;
using namespace tq::server;

namespace {

Json wrong_values() {
    Json deep = "x";
    for (int i = 0; i < 20; ++i) deep = Json::array({deep});
    Json values = {nullptr, true, 0, -1, 1.5, 1e300, UINT64_MAX, INT64_MIN, "", "x", "\xff", std::string(70000, 'a'), deep};
    values.push_back(Json::array());
    values.push_back(Json::object());
    values.push_back(Json::array({nullptr}));
    values.push_back({{"type", 5}});
    values.push_back({{"type", "text"}, {"text", Json::array()}});
    values.push_back(Json::array({{{"type", "input_text"}}}));
    return values;
}

// Calls `check` with `body` after each replacement of a value, and each removal of a member.
template <class Check> void replace_each(const Json& body, Check check) {
    const Json values = wrong_values();
    const Json leaves = body.flatten();
    for (const auto& [pointer, leaf] : leaves.items()) {
        for (Json::json_pointer place(pointer); !place.empty(); place = place.parent_pointer()) {
            for (const Json& value : values) {
                Json changed = body;
                changed[place] = value;
                check(changed, place.to_string());
            }
            Json changed = body;
            Json& parent = changed[place.parent_pointer()];
            if (parent.is_object()) {
                parent.erase(place.back());
                check(changed, fmt::format("without {}", place.to_string()));
            }
        }
    }
}

// The server also answers with a 400 what a template refuses; but its sentence knows no field.
void render(const ChatTask& task) { render_chat(task.messages, task.tools, {}); }

template <class Read> void check_all(const Json& body, Read read) {
    render(read(body, Limits()).task); // the request is valid
    size_t refused = 0, answered = 0;
    replace_each(body, [&](const Json& changed, const std::string& place) {
        CAPTURE(place);
        try {
            render(read(changed, Limits()).task);
            ++answered;
        } catch (const ApiError& error) {
            ++refused;
            CHECK(error.status == 400);
            CHECK(!error.param.empty());
            CHECK(std::string_view(error.what()).size() > 15);
        } catch (const std::exception& error) {
            FAIL_CHECK("another exception: ", error.what());
        }
    });
    CHECK(refused > 500); // each of the many fields that are read refuses most types
    CHECK(answered > 500);
}

Json text_part(const char* type) { return {{"type", type}, {"text", "Hello"}}; }

} // namespace

TEST_CASE("no value of a wrong type in a request of the responses API does worse than a 400") {
    const Json schema = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
    const Json body = {
        {"model", "m"},
        {"instructions", "Be brief"},
        {"input",
         {{{"role", "developer"}, {"content", "Hello"}},
          {{"type", "message"}, {"role", "user"}, {"content", {text_part("input_text")}}},
          {{"type", "reasoning"},
           {"summary", {text_part("summary_text")}},
           {"content", {text_part("reasoning_text")}},
           {"encrypted_content", "x"}},
          {{"type", "message"},
           {"role", "assistant"},
           {"content", {text_part("output_text"), {{"type", "refusal"}, {"refusal", "No"}}}}},
          {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"city\": \"Oslo\"}"}},
          {{"type", "custom_tool_call"}, {"call_id", "c2"}, {"name", "g"}, {"input", "x"}},
          {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", {text_part("input_text")}}},
          {{"type", "custom_tool_call_output"}, {"call_id", "c2"}, {"output", "x"}}}},
        {"tools",
         {{{"type", "function"}, {"name", "f"}, {"description", "d"}, {"parameters", schema}, {"strict", true}},
          {{"type", "custom"}, {"name", "g"}, {"description", "d"}, {"format", {{"type", "grammar"}, {"definition", "x"}}}},
          {{"type", "web_search"}}}},
        {"tool_choice", {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {{{"type", "function"}, {"name", "f"}}}}}},
        {"parallel_tool_calls", true},
        {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}}}}},
        {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
        {"max_output_tokens", 16},
        {"include", {"reasoning.encrypted_content"}},
        {"metadata", {{"k", "v"}}},
        {"store", false},
        {"stream", true}};
    check_all(body, responses_api::read);
}

TEST_CASE("no value of a wrong type in a request of Anthropic's API does worse than a 400") {
    const Json schema = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
    const Json body = {
        {"model", "m"},
        {"max_tokens", 16},
        {"system", {{{"type", "text"}, {"text", "Be brief"}, {"cache_control", {{"type", "ephemeral"}}}}}},
        {"messages",
         {{{"role", "user"}, {"content", "Hello"}},
          {{"role", "assistant"},
           {"content",
            {{{"type", "thinking"}, {"thinking", "Hm"}, {"signature", "x"}},
             {{"type", "redacted_thinking"}, {"data", "x"}},
             text_part("text"),
             {{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", {{"city", "Oslo"}}}}}}},
          {{"role", "user"},
           {"content",
            {{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"is_error", true}, {"content", {text_part("text")}}},
             text_part("text")}}},
          {{"role", "system"}, {"content", {text_part("text")}}}}},
        {"tools",
         {{{"name", "f"}, {"description", "d"}, {"input_schema", schema}},
          {{"type", "web_search_20250305"}, {"name", "web_search"}}}},
        {"tool_choice", {{"type", "tool"}, {"name", "f"}, {"disable_parallel_tool_use", true}}},
        {"thinking", {{"type", "enabled"}, {"budget_tokens", 8}}},
        {"output_config", {{"effort", "low"}, {"format", {{"type", "json_schema"}, {"schema", schema}}}}},
        {"stop_sequences", {"END"}},
        {"metadata", {{"user_id", "u"}}},
        {"stream", true}};
    check_all(body, messages_api::read);
    check_all(body, messages_api::read_prompt);
}
