// Points each coding agent at our server, without a change of its own settings: by environment variables, arguments, or a file in
// the directory of this run. Each start_ function is that client's documented way. They have in common: address and key, the
// model's name for every role of a model that the client knows, the context, and long time limits, since a small machine takes
// minutes for a long prompt. The user's own keys of other services are not passed on.
// instructions_tokens, about how long the client's system prompt is, serves only for a warning about a small context.
#include "tools/tq-run/serve/clients.h"
#include "base/path_text.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t patience_ms = 3'600'000; // a laptop takes minutes for a long prompt

std::string api(const ServedModel& model) { return model.url + "/v1"; }
std::string key(const ServedModel& model) { return model.key.empty() ? "none" : model.key; }
std::string quoted(const std::string& text) { return Json(text).dump(); } // also a string of TOML

// Returns how many tokens of the context an answer may have.
uint32_t answer_tokens(const ServedModel& model) { return std::max(1024u, model.context / 4); }

ClientStart start_claude(const ServedModel& model, const std::filesystem::path&) {
    ClientStart start;
    start.environment = {"ANTHROPIC_BASE_URL=" + model.url,
                         "ANTHROPIC_AUTH_TOKEN=" + key(model),
                         "ANTHROPIC_API_KEY=", // the user's own is not for this server
                         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
                         "CLAUDE_CODE_ATTRIBUTION_HEADER=0", // it changes with every request, before all else
                         fmt::format("API_TIMEOUT_MS={}", patience_ms),
                         fmt::format("CLAUDE_CODE_MAX_OUTPUT_TOKENS={}", answer_tokens(model))};
    for (const char* kind : {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
                             "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"})
        start.environment.push_back(fmt::format("{}={}", kind, model.name));
    if (model.context > 0) start.environment.push_back(fmt::format("CLAUDE_CODE_MAX_CONTEXT_TOKENS={}", model.context));
    return start;
}

ClientStart start_codex(const ServedModel& model, const std::filesystem::path&) {
    const std::string provider =
        fmt::format(R"({{name="tq-run",base_url={},wire_api="responses",env_key="TQ_RUN_API_KEY",stream_idle_timeout_ms={}}})",
                    quoted(api(model)), patience_ms);
    ClientStart start;
    start.arguments = {"-c", "model_provider=\"tq-run\"",  "-c", "model_providers.tq-run=" + provider,
                       "-c", "model=" + quoted(model.name)};
    if (model.context > 0) {
        start.arguments.push_back("-c");
        start.arguments.push_back(fmt::format("model_context_window={}", model.context));
    }
    start.environment = {"TQ_RUN_API_KEY=" + key(model)};
    return start;
}

ClientStart start_opencode(const ServedModel& model, const std::filesystem::path&) {
    Json known = {{"name", model.name}, {"tool_call", true}, {"reasoning", true}};
    if (model.context > 0) known["limit"] = {{"context", model.context}, {"output", answer_tokens(model)}};
    const std::string full_name = "tq-run/" + model.name;
    const Json config = {{"$schema", "https://opencode.ai/config.json"},
                         {"provider",
                          {{"tq-run",
                            {{"npm", "@ai-sdk/openai-compatible"},
                             {"name", "tq-run"},
                             {"options", {{"baseURL", api(model)}, {"apiKey", key(model)}}},
                             {"models", {{model.name, known}}}}}}},
                         {"model", full_name},
                         {"small_model", full_name}};
    ClientStart start;
    start.environment = {"OPENCODE_CONFIG_CONTENT=" + config.dump()};
    return start;
}

ClientStart start_qwen(const ServedModel& model, const std::filesystem::path&) {
    ClientStart start;
    start.arguments = {"--auth-type", "openai"};
    start.environment = {"OPENAI_BASE_URL=" + api(model), "OPENAI_API_KEY=" + key(model), "OPENAI_MODEL=" + model.name,
                         fmt::format("QWEN_STREAM_IDLE_TIMEOUT_MS={}", patience_ms)};
    return start;
}

ClientStart start_pi(const ServedModel& model, const std::filesystem::path& directory) {
    Json known = {{"id", model.name}, {"name", model.name}, {"reasoning", true}, {"input", {"text"}}};
    known["cost"] = {{"input", 0}, {"output", 0}, {"cacheRead", 0}, {"cacheWrite", 0}};
    known["contextWindow"] = model.context > 0 ? model.context : 32768;
    known["maxTokens"] = answer_tokens(model);
    known["compat"] = {{"thinkingFormat", "qwen-chat-template"}, {"supportsDeveloperRole", false}};
    const Json provider = {{"name", "tq-run"},
                           {"baseUrl", api(model)},
                           {"apiKey", key(model)},
                           {"api", "openai-completions"},
                           {"models", Json::array({known})}};
    ClientStart start;
    start.file = {"tq-run.ts",
                  fmt::format("export default function (pi) {{\n  pi.registerProvider(\"tq-run\", {});\n}}\n", provider.dump(2))};
    start.arguments = {"--extension", utf8_text(directory / start.file->name), "--provider", "tq-run", "--model", model.name};
    return start;
}

// name, program, title, how to install it, tokens of its instructions, and how it is started. The tokens are measured roughly,
// for a warning only.
constexpr Client known_clients[] = {
    {"claude", "claude", "Claude Code", "npm install -g @anthropic-ai/claude-code", 20'000, start_claude},
    {"codex", "codex", "Codex", "npm install -g @openai/codex", 10'000, start_codex},
    {"opencode", "opencode", "opencode", "npm install -g opencode-ai", 8'000, start_opencode},
    {"qwen", "qwen", "Qwen Code", "npm install -g @qwen-code/qwen-code", 18'000, start_qwen},
    {"pi", "pi", "pi", "npm install -g @mariozechner/pi-coding-agent", 2'000, start_pi},
};

} // namespace

std::span<const Client> clients() { return known_clients; }

} // namespace tq
