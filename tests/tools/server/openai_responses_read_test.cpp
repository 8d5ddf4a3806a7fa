#include "tests/tools/server/refused.h"
#include "tools/server/openai/responses.h"

using namespace tq::server;
using responses_api::Request;

namespace {

Request read(Json body) {
    if (!body.contains("input")) body["input"] = "Hello";
    return responses_api::read(body, Limits());
}

Json messages(Json body) { return read(std::move(body)).task.messages; }

std::string refused(Json body) {
    return refused_field([&] { read(body); });
}

Json parts(const char* type, const char* text) { return Json::array({{{"type", type}, {"text", text}}}); }

} // namespace

TEST_CASE("an input is a text or a list of messages") {
    const Json user = Json::array({{{"role", "user"}, {"content", "Hello"}}});
    CHECK(messages({{"input", "Hello"}}) == user);
    CHECK(messages({{"input", user}}) == user);
    CHECK(messages({{"input", {{{"type", "message"}, {"role", "user"}, {"content", parts("input_text", "Hello")}}}}}) == user);
    CHECK(refused({{"input", nullptr}}) == "input");
    CHECK(refused({{"input", 5}}) == "input");
}

TEST_CASE("trip-wire 7: instructions and the first system and developer messages are one, later ones stay where they are") {
    const Json input = {{{"role", "developer"}, {"content", "B"}},
                        {{"role", "user"}, {"content", "Hello"}},
                        {{"role", "system"}, {"content", parts("input_text", "C")}}};
    CHECK(messages({{"instructions", "A"}, {"input", input}}) == Json{{{"role", "system"}, {"content", "A\n\nB"}},
                                                                      {{"role", "user"}, {"content", "Hello"}},
                                                                      {{"role", "system"}, {"content", "C"}}});
}

TEST_CASE("trip-wire 7: a probe without any input gets an answer of one token") {
    for (const Json& input : {Json(""), Json::array()}) {
        const Request request = read({{"input", input}, {"max_output_tokens", 1}});
        CHECK(request.task.messages == Json::array({{{"role", "user"}, {"content", ""}}}));
        CHECK(request.task.sampling.max_tokens == 1u);
    }
}

TEST_CASE("trip-wire 7: a previous response is refused, since none is stored") {
    CHECK(refused({{"previous_response_id", "resp_1"}}) == "previous_response_id");
    CHECK(refused({{"conversation", "conv_1"}}) == "conversation");
    CHECK(refused({{"prompt", {{"id", "pmpt_1"}}}}) == "prompt");
    CHECK(refused({{"background", true}}) == "background");
    CHECK(refused({{"input", {{{"type", "item_reference"}, {"id", "msg_1"}}}}}) == "input[0]");
    CHECK(refused({{"input", {{{"id", "msg_1"}}}}}) == "input[0]");
    CHECK(messages({{"previous_response_id", nullptr}, {"background", false}, {"store", true}}).size() == 1);
}

TEST_CASE("trip-wire 7: tools of unknown types are skipped, not refused") {
    const Json parameters = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
    const Json tools = {
        {{"type", "web_search"}},
        {{"type", "namespace"}, {"name", "n"}, {"tools", Json::array()}},
        {{"type", "image_generation"}, {"output_format", "png"}},
        {{"type", "mcp"}, {"server_label", "m"}},
        {{"type", "local_shell"}},
        {{"type", "function"}, {"name", "weather"}, {"description", "Tells it"}, {"strict", true}, {"parameters", parameters}}};
    const Request request = read({{"tools", tools}});
    CHECK(request.task.tools ==
          Json::array({{{"type", "function"},
                        {"function", {{"name", "weather"}, {"description", "Tells it"}, {"parameters", parameters}}}}}));
    CHECK(request.echo.at("tools") == tools);
    CHECK(read({{"tools", {{{"type", "web_search"}}}}}).task.tools.is_null());
}

TEST_CASE("trip-wire 7: a custom tool is a function with one text") {
    const Json tool = {{"type", "custom"},
                       {"name", "apply_patch"},
                       {"description", "Patches"},
                       {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: x"}}}};
    const Request request = read({{"tools", {tool}}, {"tool_choice", {{"type", "custom"}, {"name", "apply_patch"}}}});
    const Json& function = request.task.tools.at(0).at("function");
    CHECK(function.at("name") == "apply_patch");
    CHECK(function.at("description") == "Patches\n\nThe input follows this grammar:\nstart: x");
    CHECK(function.at("parameters").at("properties") == Json{{"input", {{"type", "string"}}}});
    CHECK(function.at("parameters").at("required") == Json::array({"input"}));
    CHECK(request.task.custom_tools.count("apply_patch") == 1);
    CHECK(request.task.tool_name == "apply_patch");
}

TEST_CASE("trip-wire 7: the output of a function may be a list of parts") {
    const Json call = {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"x\": 1}"}};
    Json output = {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", parts("input_text", "42")}};
    const Json turns = {
        {{"role", "assistant"},
         {"content", ""},
         {"tool_calls",
          Json::array({{{"id", "c1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}}})}},
        {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "42"}}};
    CHECK(messages({{"input", {call, output}}}) == turns);
    output["output"] = "42";
    CHECK(messages({{"input", {call, output}}}) == turns);
    output["output"] = {{{"type", "input_image"}, {"image_url", "data:"}}};
    CHECK(messages({{"input", {call, output}}}).at(1).at("content") == "[image is left out: the model reads only text]");
}

TEST_CASE("reasoning, text and calls of an answer are one turn") {
    const Json input = {
        {{"role", "user"}, {"content", "Hello"}},
        {{"type", "reasoning"}, {"id", "rs_1"}, {"summary", Json::array()}, {"content", parts("reasoning_text", "Hm")}},
        {{"type", "message"}, {"role", "assistant"}, {"content", parts("output_text", "Let me see")}},
        {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{}"}},
        {{"type", "custom_tool_call"}, {"call_id", "c2"}, {"name", "g"}, {"input", "text"}},
        {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "1"}},
        {{"type", "custom_tool_call_output"}, {"call_id", "c2"}, {"output", "2"}}};
    const Json read = messages({{"input", input}});
    REQUIRE(read.size() == 4);
    CHECK(read.at(1).at("reasoning_content") == "Hm");
    CHECK(read.at(1).at("content") == "Let me see");
    CHECK(read.at(1).at("tool_calls").size() == 2);
    CHECK(read.at(1).at("tool_calls").at(1).at("function") == Json{{"name", "g"}, {"arguments", {{"input", "text"}}}});
    CHECK(read.at(3) == Json{{"role", "tool"}, {"tool_call_id", "c2"}, {"content", "2"}});
}

TEST_CASE("reasoning that this server sealed comes back, another's does not") {
    Json item = {{"type", "reasoning"}, {"summary", parts("summary_text", "Short")}};
    item["encrypted_content"] = std::string(responses_api::reasoning_seal) + "Hm";
    CHECK(messages({{"input", {item}}}).at(0).at("reasoning_content") == "Hm");
    item["encrypted_content"] = "gAAAAB";
    CHECK(messages({{"input", {item}}}).at(0).at("reasoning_content") == "");
}

TEST_CASE("trip-wire 6: bad arguments in a replayed call are shown as they are") {
    for (const char* arguments : {"{\"x\": ", "[1]", "1", "null", "{\"x\": 1e999}"}) {
        const Json call = {{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", arguments}};
        CHECK(messages({{"input", {call}}}).at(0).at("tool_calls").at(0).at("function").at("arguments") == arguments);
    }
}

TEST_CASE("images and files in messages are left out") {
    for (const auto& [type, shown] : {std::pair("input_image", "image"), {"input_file", "document"}, {"input_audio", "audio"}})
        CHECK(messages({{"input", {{{"role", "user"}, {"content", {{{"type", type}}}}}}}}).at(0).at("content") ==
              fmt::format("[{} is left out: the model reads only text]", shown));
}

TEST_CASE("the choice of a tool") {
    const Json tools = {{{"type", "function"}, {"name", "f"}}, {{"type", "function"}, {"name", "g"}}};
    const auto choose = [&](const Json& choice) { return read({{"tools", tools}, {"tool_choice", choice}}).task; };
    CHECK(choose(nullptr).tool_choice == ToolChoice::automatic);
    CHECK(choose("auto").tool_choice == ToolChoice::automatic);
    CHECK(choose("none").tool_choice == ToolChoice::none);
    CHECK(choose("required").tool_choice == ToolChoice::required);
    const ChatTask named = choose({{"type", "function"}, {"name", "g"}});
    CHECK(named.tool_choice == ToolChoice::named);
    CHECK(named.tool_name == "g");
    const Json allowed = {{"type", "allowed_tools"}, {"mode", "required"}, {"tools", {{{"type", "function"}, {"name", "g"}}}}};
    CHECK(choose(allowed).tool_choice == ToolChoice::required);
    CHECK(choose(allowed).tools.size() == 1);
    CHECK(refused({{"tools", tools}, {"tool_choice", {{"type", "function"}, {"name", "h"}}}}) == "tool_choice");
    CHECK(refused({{"tools", tools}, {"tool_choice", {{"type", "web_search"}}}}) == "tool_choice.type");
    CHECK(refused({{"tool_choice", "required"}}) == "tool_choice");
    CHECK(refused({{"tool_choice", "sometimes"}}) == "tool_choice");
}

TEST_CASE("formats, effort and limits") {
    const Json schema = {{"type", "object"}};
    const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}, {"strict", true}};
    CHECK(read({{"text", {{"format", format}}}}).task.format.schema == schema);
    CHECK(read({{"text", {{"format", {{"type", "json_object"}}}}}}).task.format.kind == Format::Kind::json_object);
    CHECK(read({{"text", {{"verbosity", "low"}}}}).task.format.kind == Format::Kind::text);
    CHECK(refused({{"text", {{"format", {{"type", "json_schema"}}}}}}) == "text.format.schema");
    CHECK(read({{"reasoning", {{"effort", "none"}}}}).task.think == false);
    CHECK(read({{"reasoning", {{"effort", "high"}}}}).task.think == true);
    CHECK(!read({{"reasoning", {{"effort", nullptr}}}}).task.think);
    CHECK(refused({{"max_output_tokens", 0}}) == "max_output_tokens");
    CHECK(!read({{"parallel_tool_calls", false}}).task.parallel_tool_calls);
    CHECK(read({{"stream", true}}).stream);
    CHECK(read({{"include", {"reasoning.encrypted_content"}}}).sealed_reasoning);
    CHECK_FALSE(read({{"include", {"reasoning.encrypted_content"}}}).task.sampling.logprobs);
}

TEST_CASE("logprobs are included when asked for, with so many alternatives") {
    const Request request = read({{"include", {"message.output_text.logprobs"}}, {"top_logprobs", 3}});
    CHECK(request.task.sampling.logprobs);
    CHECK(request.task.sampling.top_logprobs == 3);
    CHECK(request.echo.at("top_logprobs") == 3);
    CHECK(read({{"top_logprobs", 1}}).task.sampling.logprobs);
    CHECK(refused({{"top_logprobs", 21}}) == "top_logprobs");
    CHECK(refused({{"top_logprobs", -1}}) == "top_logprobs");
}
