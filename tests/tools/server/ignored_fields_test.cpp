// Fields that change answers elsewhere: each API says once in the log that it ignores them.
#include "tests/support/text.h"
#include "tests/tools/server/scripted_server.h"
#include "tools/server/openai/messages.h"
#include <algorithm>

using namespace tq;
using namespace tq::server;
using test::contains;

namespace {

struct Api {
    const char* name;
    HttpReply (*handle)(Service&, const HttpRequest&);
    Json body;
};

const Json user = Json::array({{{"role", "user"}, {"content", "Hi"}}});

const Api apis[] = {{"chat", chat_completions, {{"messages", user}}},
                    {"completions", completions, {{"prompt", "Hi"}}},
                    {"responses", responses, {{"input", "Hi"}}},
                    {"messages", messages, {{"messages", user}, {"max_tokens", 9}}},
                    {"completion", completion, {{"prompt", "Hi"}}},
                    {"infill", infill, {{"input_prefix", "Hi"}, {"n_predict", 2}}},
                    {"ollama chat", ollama_chat, {{"messages", user}, {"stream", false}}},
                    {"ollama raw", ollama_generate, {{"prompt", "Hi"}, {"raw", true}, {"stream", false}}}};

std::string log_of(const Api& api, const Json& more) {
    std::string log;
    ServiceOptions options = ScriptedServer::greedy();
    options.log = [&](const std::string& line) { log += line + "\n"; };
    ScriptedServer server([](const std::string&) { return "ok"; }, ChatVariant::instruct, options);
    Json body = api.body;
    body.update(more);
    for (int i = 0; i < 2; ++i) server.answer(api.handle, body);
    return log;
}

} // namespace

TEST_CASE("what has no effect here is said once in the log, by whatever API it comes") {
    const Json fields = {{"functions", {{{"name", "f"}}}},
                         {"web_search_options", {{"search_context_size", "low"}}},
                         {"mcp_servers", {{{"url", "x"}}}},
                         {"guided_json", {{"type", "object"}}},
                         {"guided_regex", "a+"},
                         {"structured_outputs", {{"json", {}}}},
                         {"prompt_logprobs", 1},
                         {"num_beams", 4},
                         {"use_beam_search", true},
                         {"min_tokens", 3},
                         {"stop_token_ids", {1}},
                         {"bad_words", {"a"}},
                         {"allowed_token_ids", {1, 2}},
                         {"n_probs", 2},
                         {"mirostat", 2},
                         {"mirostat_tau", 4.0},
                         {"dry_multiplier", 0.8},
                         {"dry_base", 2},
                         {"xtc_probability", 0.5},
                         {"xtc_threshold", 0.2},
                         {"typical_p", 0.9},
                         {"dynatemp_range", 0.5},
                         {"top_n_sigma", 1.0},
                         {"samplers", {"top_k"}},
                         {"chat_template", "{{ messages }}"},
                         {"add_generation_prompt", false},
                         {"skip_special_tokens", false},
                         {"logits_processors", {"x"}},
                         {"stop_regex", "a+"},
                         {"context_management", {{"edits", {{{"type", "x"}}}}}},
                         {"truncation", "auto"},
                         {"of_a_server_to_come", 7}};
    for (const Api& api : apis) {
        const std::string log = log_of(api, fields);
        for (const auto& [name, value] : fields.items()) {
            CAPTURE(api.name);
            CAPTURE(name);
            const std::string said = fmt::format("the field \"{}\"", name);
            CHECK(contains(log, said));
            CHECK(log.find(said) == log.rfind(said));
        }
    }
}

TEST_CASE("a field that asks for nothing is no news") {
    const Json neutral = {{"functions", Json::array()},
                          {"num_beams", 1},
                          {"use_beam_search", false},
                          {"min_tokens", 0},
                          {"bad_words", Json::array()},
                          {"n_probs", 0},
                          {"mirostat", 0},
                          {"mirostat_tau", 5.0},
                          {"dry_multiplier", 0.0},
                          {"dry_base", 1.75},
                          {"xtc_probability", 0.0},
                          {"xtc_threshold", 0.1},
                          {"typical_p", 1.0},
                          {"top_n_sigma", -1.0},
                          {"guided_regex", nullptr},
                          {"add_generation_prompt", true},
                          {"skip_special_tokens", true},
                          {"truncation", "disabled"},
                          {"best_of", 1},
                          {"metadata", {{"a", "b"}}},
                          {"user", "u"},
                          {"model", "m"},
                          {"stream_options", {{"include_usage", true}}},
                          {"service_tier", "auto"},
                          {"client_metadata", {{"a", "b"}}}};
    for (const Api& api : apis) {
        CAPTURE(api.name);
        CHECK(log_of(api, neutral) == "");
    }
    CHECK(log_of(apis[0], {{"temperature", 0.5}}) == "");
}

TEST_CASE("what is read is no news, with the names of all servers for it") {
    Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Ho"}}}},
                 {"continue_final_message", true},
                 {"add_generation_prompt", false},
                 {"reasoning_effort", "low"},
                 {"thinking_budget_tokens", 5},
                 {"chat_template_kwargs", {{"enable_thinking", false}, {"thinking", false}}},
                 {"tools", Json::array()},
                 {"tool_choice", "auto"},
                 {"parallel_tool_calls", false},
                 {"response_format", {{"type", "text"}}},
                 {"max_completion_tokens", 4},
                 {"logit_bias", Json::object()},
                 {"seed", 3},
                 {"stream", false}};
    CHECK(log_of({"chat", chat_completions, body}, Json::object()) == "");
    body["chat_template_kwargs"]["date_string"] = "today";
    CHECK(contains(log_of({"chat", chat_completions, body}, Json::object()), "the argument \"date_string\" of a chat template"));
    Json many = Json::object();
    for (int i = 0; i < 1000; ++i) many[fmt::format("field{}", i)] = 1;
    const std::string log = log_of({"chat", chat_completions, {{"messages", user}}}, many);
    CHECK(std::ranges::count(log, '\n') <= 64);
}

TEST_CASE("\"thinking\" among the arguments of a template decides, as \"enable_thinking\" does") {
    ScriptedServer server("yes", ChatVariant::hybrid);
    for (const bool think : {false, true})
        for (const char* name : {"thinking", "enable_thinking"}) {
            const ChatTask task = read_chat_task(server.service, {{"messages", user}, {"chat_template_kwargs", {{name, think}}}});
            CHECK(task.think == think);
        }
}
