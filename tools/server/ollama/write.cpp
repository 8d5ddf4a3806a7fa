// Ollama's answers. A stream has a line of JSON for each piece; otherwise the pieces are gathered, and end() makes one object of
// them. The last object has the counts and times, and after /api/generate the ids with which the next prompt begins ("context").
#include "tools/server/call_arguments.h"
#include "tools/server/ollama/ollama.h"
#include "tools/server/openai/reply.h"

namespace tq::server::ollama_api {

Writer::Writer(const Service& service, Form form, bool stream, bool logprobs, std::shared_ptr<const Generation> generation)
    : model_(service.model_name()), form_(form), stream_(stream), has_logprobs_(logprobs), generation_(std::move(generation)) {}

std::string Writer::line(const Json& json) const { return stream_ ? dump_text(json) + "\n" : std::string(); }

Json Writer::piece(const std::string& content, const std::string& thinking, Json calls, Json logprobs) const {
    Json json = {{"model", model_}, {"created_at", utc_text(std::chrono::system_clock::now())}};
    Json message = form_ == Form::chat ? Json{{"role", "assistant"}, {"content", content}} : Json{{"response", content}};
    if (!thinking.empty()) message["thinking"] = thinking;
    if (calls.is_array() && !calls.empty()) message["tool_calls"] = std::move(calls);
    if (form_ == Form::chat)
        json["message"] = std::move(message);
    else
        json.update(message);
    if (has_logprobs_ && logprobs.is_array() && !logprobs.empty()) json["logprobs"] = std::move(logprobs);
    json["done"] = false;
    return json;
}

std::string Writer::say(const std::string& content, const std::string& thinking, Json calls, Json logprobs) {
    if (content.empty() && thinking.empty() && calls.empty() && logprobs.empty()) return {};
    if (stream_) return line(piece(content, thinking, std::move(calls), std::move(logprobs)));
    content_ += content;
    thinking_ += thinking;
    append(calls_, std::move(calls));
    append(logprobs_, std::move(logprobs));
    return {};
}

// A call is sent as one, with its arguments as an object: of one that was cut off, or is no JSON, what came whole.
std::string Writer::show(const Event& event) {
    const AnswerPart& part = event.part;
    switch (part.kind) {
    case AnswerPart::Kind::reasoning: return say("", part.text);
    case AnswerPart::Kind::content: return say(part.text, "", {}, content_logprobs(event));
    case AnswerPart::Kind::call_begin: name_ = part.text, arguments_.clear(); return {};
    case AnswerPart::Kind::arguments: arguments_ += part.text; return {};
    case AnswerPart::Kind::call_end: break;
    }
    Json arguments = read_arguments(arguments_).value_or(whole_members(arguments_));
    Json function = {{"index", call_count_++}, {"name", name_}, {"arguments", std::move(arguments)}};
    return say("", "", Json::array({{{"id", random_id("call_")}, {"function", std::move(function)}}}));
}

std::string Writer::write(const std::vector<Event>& events) {
    std::string out;
    for (const Event& event : events)
        if (!event.finish) out += show(event);
    return out;
}

std::string Writer::end(const Outcome& outcome) {
    const auto total = std::chrono::steady_clock::now() - began_;
    last_ = piece(content_, thinking_, calls_, logprobs_);
    last_["done"] = true;
    last_["done_reason"] = outcome.finish == FinishReason::length ? "length" : "stop";
    if (form_ == Form::generate && generation_)
        if (auto ids = generation_->answered_ids(); !ids.empty()) last_["context"] = std::move(ids);
    last_["total_duration"] = std::chrono::duration_cast<std::chrono::nanoseconds>(total).count();
    last_["load_duration"] = 0;
    last_["prompt_eval_count"] = outcome.usage.prompt_tokens;
    last_["prompt_eval_duration"] = outcome.timings.prompt_ns;
    last_["eval_count"] = outcome.usage.completion_tokens;
    last_["eval_duration"] = outcome.timings.decode_ns;
    return line(last_);
}

std::string Writer::fail(const ApiError& error) { return error_body(error, Envelope::ollama) + "\n"; }

} // namespace tq::server::ollama_api
