// POST /v1/chat/completions.
#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include "tools/server/handlers.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai_messages.h"
#include "tools/server/openai_reply.h"

namespace tq::server {
namespace {

using PartKind = AnswerPart::Kind;

// An answer that is sent as one.
struct WholeMessage {
    std::string content, reasoning;
    Json calls = Json::array(), logprobs = Json::array();
    std::string name, arguments; // of the call that is not at its end

    void add(const Event& event) {
        const AnswerPart& part = event.part;
        append(logprobs, content_logprobs(event));
        switch (part.kind) {
        case PartKind::reasoning: reasoning += part.text; break;
        case PartKind::content: content += part.text; break;
        case PartKind::call_begin: name = part.text, arguments.clear(); break;
        case PartKind::arguments: arguments += part.text; break;
        case PartKind::call_end:
            if (part.valid || part.cut)
                calls.push_back(
                    {{"id", random_id("call_")}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
            else
                content += part.text;
        }
    }

    Json json() const {
        Json message = {{"role", "assistant"}, {"content", content.empty() && !calls.empty() ? Json() : Json(content)}};
        if (!reasoning.empty()) message["reasoning_content"] = reasoning;
        if (!calls.empty()) message["tool_calls"] = calls;
        return message;
    }
};

// Writes an answer as it comes.
class ChatStream {
  public:
    ChatStream(const Service& service, Generation& generation, bool usage, bool logprobs)
        : head_(completion_head(service, random_id("chatcmpl-"), "chat.completion.chunk")), generation_(generation),
          usage_(usage), logprobs_(logprobs), begun_(generation.choices()) {}

    std::string events(const std::vector<Event>& events) {
        std::string out;
        for (const Event& event : events) {
            out += begin(event.choice);
            Json delta = delta_of(event.part), logprobs;
            if (logprobs_ && event.part.kind == PartKind::content) {
                logprobs = {{"content", content_logprobs(event)}};
            }
            const bool has_tokens = !logprobs.is_null() && !logprobs["content"].empty();
            if (!delta.empty() || has_tokens) out += chunk(event.choice, std::move(delta), nullptr, logprobs);
        }
        return out;
    }

    // For readers of events, who do not count comments.
    std::string ping() const { return chunk(0, Json::object(), nullptr, {}); }

    std::string end() {
        std::string out;
        for (uint32_t i = 0; i < generation_.choices(); ++i) {
            out += begin(i);
            const bool last = i + 1 == generation_.choices();
            out += chunk(i, Json::object(), finish_name(generation_.finish(i)), {},
                         last ? timings_json(generation_.timings()) : Json());
        }
        if (usage_) {
            Json json = head_;
            json["choices"] = Json::array();
            json["usage"] = completion_usage(generation_.usage());
            out += data_event(json);
        }
        out += done_event;
        return out;
    }

  private:
    // The role is in the first chunk of a choice only.
    std::string begin(uint32_t choice) {
        if (begun_[choice]) return {};
        begun_[choice] = true;
        return chunk(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, {});
    }

    Json delta_of(const AnswerPart& part) const {
        const auto call = [&](Json fields) {
            Json entry = {{"index", part.call}};
            entry.update(fields);
            return Json{{"tool_calls", Json::array({entry})}};
        };
        if (part.kind == PartKind::call_begin)
            return call(
                {{"id", random_id("call_")}, {"type", "function"}, {"function", {{"name", part.text}, {"arguments", ""}}}});
        if (part.kind == PartKind::call_end || part.text.empty()) return Json::object();
        if (part.kind == PartKind::arguments) return call({{"function", {{"arguments", part.text}}}});
        return {{part.kind == PartKind::reasoning ? "reasoning_content" : "content", part.text}};
    }

    std::string chunk(uint32_t choice, Json delta, const char* finish, const Json& logprobs, const Json& timings = {}) const {
        Json json = head_;
        json["choices"] = Json::array({{{"index", choice},
                                        {"delta", std::move(delta)},
                                        {"logprobs", logprobs},
                                        {"finish_reason", finish ? Json(finish) : Json()}}});
        if (!timings.is_null()) json["timings"] = timings;
        return data_event(json);
    }

    const Json head_;
    Generation& generation_;
    const bool usage_, logprobs_;
    std::vector<bool> begun_;
};

HttpReply stream_chat(Service& service, std::shared_ptr<Generation> generation, const HttpRequest& request, bool usage,
                      bool logprobs) {
    return event_stream(
        [&service, generation = std::move(generation), request = without_body(request), usage, logprobs](const Send& send) {
            ChatStream stream(service, *generation, usage, logprobs);
            const bool whole = run_generation(
                service, *generation, request,
                [&](const std::vector<Event>& events) { return send_some(send, stream.events(events)); },
                [&] { return send(stream.ping()); });
            if (!whole || !send_last(send, stream.end())) return;
            generation->run_ahead();
        });
}

} // namespace

HttpReply chat_completions(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    const bool streams = bool_field(body, "stream").value_or(false), usage = wants_usage(body);
    const ChatTask task = read_chat_task(service, body);
    auto generation = std::make_shared<Generation>(service, task, request.tenant);
    if (streams) return stream_chat(service, std::move(generation), request, usage, task.sampling.logprobs);

    std::vector<WholeMessage> messages(generation->choices());
    const bool whole = run_generation(
        service, *generation, request,
        [&](const std::vector<Event>& events) {
            for (const Event& event : events) messages[event.choice].add(event);
            return true;
        },
        [] { return true; });
    if (!whole) return {.status = 499}; // nobody reads it
    Json json = completion_head(service, random_id("chatcmpl-"), "chat.completion");
    json["choices"] = Json::array();
    for (uint32_t i = 0; i < generation->choices(); ++i)
        json["choices"].push_back({{"index", i},
                                   {"message", messages[i].json()},
                                   {"logprobs", task.sampling.logprobs ? Json{{"content", messages[i].logprobs}} : Json()},
                                   {"finish_reason", finish_name(generation->finish(i))}});
    json["usage"] = completion_usage(generation->usage());
    json["timings"] = timings_json(generation->timings());
    generation->run_ahead();
    return json_reply(json);
}

} // namespace tq::server
