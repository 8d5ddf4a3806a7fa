// Requests of Ollama's /api/chat and /api/generate become the tasks of the other APIs. The differences: fields of sampling are
// within "options"; "think" is a switch or an effort; a request without a question only loads the model, which is there already;
// /api/generate takes the token ids of the conversation so far as "context", and gives them back. /api/generate has three forms,
// in this order: with a suffix (fill in the middle), raw (the prompt is all that the model reads), else a chat of one message.
// Clients send all fields of their forms, also empty ones, so an empty text or list counts as missing.
#include "base/printable.h"
#include "tools/server/conversation.h"
#include "tools/server/ollama/ollama.h"
#include "tools/server/openai/messages.h"
#include "tools/server/prompt.h"
#include <algorithm>

namespace tq::server::ollama_api {
namespace {

// "json", or a schema; an empty text is none.
Format read_ollama_format(const Json& body) {
    const Json* given = member(body, "format");
    if (!given || *given == "") return {};
    if (*given == "json") return {.kind = Format::Kind::json_object, .schema = {}, .gbnf = {}};
    if (!given->is_object()) bad_request("format", "\"format\" must be \"json\" or a JSON schema");
    return {.kind = Format::Kind::json_schema, .schema = *given, .gbnf = {}};
}

// true, false, or how much: "low", "medium", "high".
void read_ollama_think(ChatTask& task, const Json& body) {
    const Json* think = member(body, "think");
    if (!think) return;
    if (think->is_boolean())
        task.think = think->get<bool>();
    else if (!think->is_string() || !read_effort(task, think->get<std::string>()))
        bad_request("think", "\"think\" must be true, false, \"low\", \"medium\" or \"high\"");
}

// "options" are the fields that other APIs have beside the messages. Their names are llama.cpp's but for num_predict.
Sampling read_options(Service& service, const Json& body, std::set<std::string>& ignored) {
    const Json* given = object_field(body, "options");
    if (!given) return read_sampling(service, Json::object());
    constexpr std::string_view known[]{"temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "num_predict",
                                       "stop",
                                       "seed",
                                       "repeat_penalty",
                                       "repeat_last_n",
                                       "presence_penalty",
                                       "frequency_penalty"};
    Json options = Json::object();
    for (const auto& [name, value] : given->items()) {
        if (std::ranges::find(known, name) == std::end(known))
            ignored.insert(fmt::format("the option \"{}\"", printable(name, 40)));
        else if (name != "num_predict")
            options[name] = value;
    }
    const auto tokens = integer_field(*given, "num_predict", -2, INT32_MAX, "options"); // -1: no limit, -2: to the context's end
    if (tokens && *tokens >= 0) options["max_tokens"] = *tokens;
    return read_sampling(service, options);
}

void read_common(Service& service, ChatTask& task, const Json& body) {
    task.format = read_ollama_format(body);
    read_ollama_think(task, body);
    task.sampling = read_options(service, body, task.ignored);
    read_logprobs(task.sampling, body, service.options.limits);
}

// A request without a question only says how long the model is kept; 0 (a number, or a duration such as "0s"): no longer.
void read_loading(Request& request, const Json& body) {
    request.only_loads = true;
    const Json* kept = member(body, "keep_alive");
    request.unloads = kept && (*kept == 0 || *kept == "0" || *kept == "0s" || *kept == "0m");
}

TextTask raw_task(Service& service, const Json& body, std::vector<uint32_t> prompt) {
    TextTask task{.prompts = {std::move(prompt)}, .format = read_ollama_format(body)};
    task.sampling = read_options(service, body, task.ignored);
    read_logprobs(task.sampling, body, service.options.limits);
    return task;
}

// Refuses these fields as Ollama does: all of a raw prompt is in its text.
void refuse_beside_raw(const Json& body) {
    for (const char* name : {"system", "template", "context"})
        if (const Json* value = member(body, name); value && *value != "" && !(value->is_array() && value->empty()))
            bad_request(name,
                        "\"{}\" has no use with \"raw\", where the prompt is all that the model reads: leave one of them out",
                        name);
}

std::vector<uint32_t> raw_prompt(const Service& service, const std::string& text) {
    const Piece piece{text, true};
    const auto turn = begin_encoding(service, {&piece, 1}, "prompt");
    return service.model.tokenizer.prompt(text);
}

} // namespace

Request read_chat(Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    Request request;
    request.stream = bool_field(body, "stream").value_or(true);
    const Json* messages = array_field(body, "messages", limits.messages);
    if (!messages || messages->empty()) {
        read_loading(request, body);
        return request;
    }
    ChatTask task;
    Conversation conversation;
    constexpr std::string_view roles[]{"system", "user", "assistant", "tool"};
    for (size_t i = 0; i < messages->size(); ++i)
        read_message(conversation, object_entry(*messages, i, "messages"), roles, limits, entry_path("messages", i));
    task.messages = conversation.take();
    task.ignored = conversation.ignored();
    read_tools(task, body, limits);
    read_common(service, task, body);
    request.task = std::move(task);
    return request;
}

Request read_generate(Service& service, const Json& body) {
    Request request;
    request.stream = bool_field(body, "stream").value_or(true);
    const std::string prompt = text_field(body, "prompt").value_or(""), suffix = text_field(body, "suffix").value_or("");
    if (prompt.empty() && suffix.empty()) {
        read_loading(request, body);
        return request;
    }
    if (!suffix.empty()) {
        request.task = raw_task(service, body, infill_prompt(service, prompt, suffix, "", {}, "suffix"));
        return request;
    }
    if (bool_field(body, "raw").value_or(false)) {
        refuse_beside_raw(body);
        request.task = raw_task(service, body, raw_prompt(service, prompt));
        return request;
    }
    ChatTask task;
    Conversation conversation;
    if (text_field(body, "system").value_or("") != "") // clients send all fields, also empty ones
        read_system(conversation, body, "system", service.options.limits, "");
    Json message = {{"role", "user"}, {"content", prompt}};
    if (const Json* images = member(body, "images")) message["images"] = *images;
    constexpr std::string_view roles[]{"user"};
    read_message(conversation, message, roles, service.options.limits, "prompt");
    task.messages = conversation.take();
    task.ignored = conversation.ignored();
    if (const Json* context = member(body, "context")) task.context = read_ids(service, *context, "context");
    read_common(service, task, body);
    request.task = std::move(task);
    return request;
}

} // namespace tq::server::ollama_api
