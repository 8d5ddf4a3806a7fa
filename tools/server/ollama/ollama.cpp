// Ollama's endpoints: /api/chat and /api/generate as a Generation with a Writer of their own (streams are lines of JSON, not
// server-sent events), and the lists by which clients find a model. This server has one model and keeps it loaded. So a request
// that only loads or unloads is answered at once, /api/ps always has one entry that never expires, and pull, create, copy and
// delete are refused with a reason.
#include "tools/server/ollama/ollama.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/server/constraints.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/openai/models.h"
#include "tools/server/openai/reply.h"
#include <filesystem>

namespace tq::server {
namespace {

using ollama_api::Form;

// The version of Ollama whose API this is: clients refuse older ones.
constexpr const char* ollama_version_text = "0.13.0";

// A request without a prompt or messages means "load the model" (or, with keep_alive 0, "unload it"); the client waits for a
// reply with the done_reason of that.
HttpReply answer_ollama(Service& service, const HttpRequest& request, Form form) {
    bool unloads = false;
    Asked asked = read_body(service, request, [&](const Json& body) -> Asked {
        const auto read = form == Form::chat ? ollama_api::read_chat(service, body) : ollama_api::read_generate(service, body);
        const bool logprobs = std::visit([](const auto& task) { return task.sampling.logprobs; }, read.task);
        const auto begin = [&](const auto& task) { return std::make_shared<Generation>(service, task, request.tenant); };
        const auto generation = read.only_loads ? nullptr : std::visit(begin, read.task);
        unloads = read.unloads;
        return {generation, std::make_shared<ollama_api::Writer>(service, form, read.stream, logprobs, generation), read.stream};
    });
    if (!asked.generation) {
        asked.writer->end({});
        Json json = asked.writer->whole();
        json["done_reason"] = unloads ? "unload" : "load";
        return json_reply(json);
    }
    HttpReply reply = answer(service, request, std::move(asked));
    if (reply.stream) reply.type = "application/x-ndjson";
    return reply;
}

// "1.5B", as Ollama writes it.
std::string parameters_text(uint64_t count) {
    return count >= 1'000'000'000 ? fmt::format("{:.1f}B", double(count) / 1e9) : fmt::format("{:.2f}M", double(count) / 1e6);
}

// Identifies this file by its name, size and time. Ollama's digest is a SHA-256 of the file, which nobody compares.
std::string digest_of(const Service& service, std::chrono::system_clock::time_point modified) {
    const std::string what = fmt::format("{}\n{}\n{}", service.model.name, service.model.weights.bytes(), utc_text(modified));
    std::string digest;
    for (uint64_t part = 0; part < 4; ++part) { // FNV-1a
        uint64_t hash = 14695981039346656037u + part;
        for (const char c : what) hash = (hash ^ uint8_t(c)) * 1099511628211u;
        digest += fmt::format("{:016x}", hash);
    }
    return digest;
}

std::chrono::system_clock::time_point modified_time(const Service& service) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(service.model.file.path(), error);
    if (error) return std::chrono::system_clock::time_point(std::chrono::seconds(service.options.started_unix_s));
    const auto age = std::filesystem::file_time_type::clock::now() - time;
    return std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(age);
}

Json details_of(const Service& service) {
    const Model& model = service.model;
    return {{"parent_model", ""},
            {"format", "gguf"},
            {"family", model.config.architecture->name},
            {"families", Json::array({model.config.architecture->name})},
            {"parameter_size", parameters_text(parameter_count(model))},
            {"quantization_level", weight_type_text(model)}};
}

Json model_entry(const Service& service) {
    const auto modified = modified_time(service);
    return {{"name", service.model_name()},           {"model", service.model_name()},
            {"modified_at", utc_text(modified)},      {"size", service.model.weights.bytes()},
            {"digest", digest_of(service, modified)}, {"details", details_of(service)}};
}

// Clients offer tools, thinking or insertion only if these names are listed. They say what this server can do with this model:
// tools if the template has them, insertion if the vocabulary has the tokens for it.
Json capabilities_of(const Service& service) {
    Json all = Json::array({service.options.embeddings ? "embedding" : "completion"});
    const Tokenizer& tokenizer = service.model.tokenizer;
    const ChatVariant chat = service.model.chat;
    if (is_llama(chat) || has_call_tags(tokenizer)) all.push_back("tools");
    if (may_think(service.model.chat)) all.push_back("thinking");
    if (tokenizer.infill().are_there()) all.push_back("insert");
    return all;
}

} // namespace

HttpReply ollama_chat(Service& service, const HttpRequest& request) { return answer_ollama(service, request, Form::chat); }

HttpReply ollama_generate(Service& service, const HttpRequest& request) {
    return answer_ollama(service, request, Form::generate);
}

HttpReply ollama_models(Service& service, const HttpRequest& request) {
    throw ApiError(404, "invalid_request_error",
                   fmt::format("{} is not for this server: its one model, {}, was chosen when it was started, and tq-run models "
                               "lists and removes others",
                               printable(request.path, 100), printable(service.model_name())));
}

HttpReply ollama_version(Service&, const HttpRequest&) { return json_reply({{"version", ollama_version_text}}); }

HttpReply ollama_tags(Service& service, const HttpRequest&) {
    return json_reply({{"models", Json::array({model_entry(service)})}});
}

HttpReply ollama_ps(Service& service, const HttpRequest&) {
    Json entry = model_entry(service);
    entry.erase("modified_at");
    entry["expires_at"] = "9999-12-31T23:59:59Z"; // never
    entry["size_vram"] = service.model.weights.bytes();
    entry["context_length"] = service.scheduler.context_size();
    return json_reply({{"models", Json::array({std::move(entry)})}});
}

HttpReply ollama_show(Service& service, const HttpRequest& request) {
    parse_body(request.body, service.options.limits);
    const Model& model = service.model;
    const std::string family(model.config.architecture->name);
    return json_reply({{"modelfile", fmt::format("FROM {}\n", utf8_text(model.file.path().filename()))},
                       {"parameters", ""},
                       {"template", std::string(model.file.text("tokenizer.chat_template", ""))},
                       {"details", details_of(service)},
                       {"model_info",
                        {{"general.architecture", family},
                         {"general.parameter_count", parameter_count(model)},
                         {family + ".context_length", service.scheduler.context_size()},
                         {family + ".embedding_length", model.config.hidden_size},
                         {family + ".block_count", model.config.num_hidden_layers}}},
                       {"capabilities", capabilities_of(service)},
                       {"modified_at", utc_text(modified_time(service))}});
}

} // namespace tq::server
