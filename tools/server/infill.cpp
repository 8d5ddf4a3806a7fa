// POST /completion and /infill, llama.cpp's: a text to go on with, and one whose middle is to be written.
#include "tools/server/handlers.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai_reply.h"
#include "tools/server/prompt.h"

namespace tq::server {
namespace {

TextTask read_infill(Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    const std::string prefix = text_field(body, "input_prefix").value_or(""),
                      suffix = text_field(body, "input_suffix").value_or("");
    const std::string begun = text_field(body, "prompt").value_or(""); // what the middle begins with
    std::vector<InfillFile> others;
    const Json* extra = array_field(body, "input_extra", limits.messages);
    for (size_t i = 0; extra && i < extra->size(); ++i) {
        const std::string path = fmt::format("input_extra[{}]", i);
        const Json& one = (*extra)[i];
        if (!one.is_object()) bad_request(path, "{} must be an object with a filename and a text", path);
        others.push_back({text_field(one, "filename", path).value_or("tmp"), text_field(one, "text", path).value_or("")});
    }
    return {.prompt = infill_prompt(service, prefix, suffix, begun, others, "input_suffix")};
}

Json piece(const std::string& content) { return {{"content", content}, {"stop", false}}; }

Json last_piece(const Service& service, const Generation& generation, const std::string& content) {
    const auto& word = generation.stop_string(0);
    const Usage usage = generation.usage();
    return {{"content", content},
            {"stop", true},
            {"model", service.model_name()},
            {"stop_type", word                                           ? "word"
                          : generation.finish(0) == FinishReason::length ? "limit"
                                                                         : "eos"},
            {"stopping_word", word.value_or("")},
            {"truncated", false},
            {"tokens_predicted", usage.completion_tokens},
            {"tokens_evaluated", usage.prompt_tokens},
            {"tokens_cached", usage.cached_tokens},
            {"timings", timings_json(generation.timings())}};
}

HttpReply complete(Service& service, const HttpRequest& request, const Json& body, TextTask task) {
    const bool streams = bool_field(body, "stream").value_or(false);
    task.sampling = read_sampling(service, body);
    task.sampling.choices = 1;
    task.format = read_format(body);
    auto generation = std::make_shared<Generation>(service, task, request.tenant);
    if (streams)
        return event_stream([&service, generation, client = without_body(request)](const Send& send) {
            const auto on_events = [&](const std::vector<Event>& events) {
                std::string out;
                for (const Event& event : events) out += data_event(piece(event.part.text));
                return send_some(send, out);
            };
            if (run_generation(service, *generation, client, on_events, [&] { return send(data_event(piece(""))); }))
                send_last(send, data_event(last_piece(service, *generation, "")));
        });
    std::string content;
    const auto on_events = [&](const std::vector<Event>& events) {
        for (const Event& event : events) content += event.part.text;
        return true;
    };
    if (!run_generation(service, *generation, request, on_events, [] { return true; })) return {.status = 499}; // nobody reads it
    return json_reply(last_piece(service, *generation, content));
}

} // namespace

HttpReply infill(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    return complete(service, request, body, read_infill(service, body));
}

HttpReply completion(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    return complete(service, request, body, {.prompt = text_prompt(service, body)});
}

} // namespace tq::server
