// Fields that change answers elsewhere: each API says once in the log that it ignores them.
#include "tests/support/text.h"
#include "tests/tools/server/scripted_server.h"

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
                         {"samplers", {"top_k"}}};
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
                          {"temperature", 0.5}};
    for (const Api& api : apis) {
        CAPTURE(api.name);
        CHECK(log_of(api, neutral) == "");
    }
}
