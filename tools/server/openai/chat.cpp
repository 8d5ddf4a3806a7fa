// POST /v1/chat/completions.
// Parts of answers (AnswerPart) become OpenAI's messages: thinking is reasoning_content, calls are tool_calls, custom tools get
// the text that their one argument holds. A call that is no valid JSON in the end is a call, too: the client finds arguments that
// it cannot parse, streamed or not, and can tell the model so.
#include "tools/server/answer_writer.h"
#include "tools/server/call_arguments.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai/messages.h"
#include "tools/server/openai/reply.h"

namespace tq::server {
namespace {

using PartKind = AnswerPart::Kind;

// A call, or the beginning of one that is streamed.
Json call_begin(const std::string& name, bool custom, const std::string& arguments) {
    Json call = {{"id", random_id("call_")}, {"type", custom ? "custom" : "function"}};
    if (custom)
        call["custom"] = {{"name", name}, {"input", custom_input(arguments)}};
    else
        call["function"] = {{"name", name}, {"arguments", arguments}};
    return call;
}

// A choice of an answer so far.
struct ChatMessageSoFar {
    std::string content, reasoning;
    Json calls = Json::array(), logprobs = Json::array();
    std::string name, arguments; // of the call that is not at its end
    FinishReason finish = FinishReason::stop;

    void add(const Event& event, const std::set<std::string>& custom_tools) {
        const AnswerPart& part = event.part;
        append(logprobs, content_logprobs(event));
        switch (part.kind) {
        case PartKind::reasoning: reasoning += part.text; break;
        case PartKind::content: content += part.text; break;
        case PartKind::call_begin: name = part.text, arguments.clear(); break;
        case PartKind::arguments: arguments += part.text; break;
        case PartKind::call_end: calls.push_back(call_begin(name, custom_tools.contains(name), arguments));
        }
    }

    Json json() const {
        Json message = {{"role", "assistant"}, {"content", content.empty() && !calls.empty() ? Json() : Json(content)}};
        if (!reasoning.empty()) message["reasoning_content"] = reasoning;
        if (!calls.empty()) message["tool_calls"] = calls;
        return message;
    }
};

// Returns what a chunk of a stream says of a part. The text of a custom tool comes at the call's end, from its arguments.
Json delta_of(ChatMessageSoFar& message, const AnswerPart& part, const std::set<std::string>& custom_tools) {
    const auto call = [&](Json fields) {
        Json entry = {{"index", part.call}};
        entry.update(fields);
        return Json{{"tool_calls", Json::array({entry})}};
    };
    if (part.kind == PartKind::call_begin) message.name = part.text, message.arguments.clear();
    const bool custom = custom_tools.contains(message.name);
    switch (part.kind) {
    case PartKind::call_begin: return call(call_begin(message.name, custom, ""));
    case PartKind::arguments:
        if (!custom) return call({{"function", {{"arguments", part.text}}}});
        message.arguments += part.text;
        return Json::object();
    case PartKind::call_end: return custom ? call({{"custom", {{"input", custom_input(message.arguments)}}}}) : Json::object();
    case PartKind::reasoning:
    case PartKind::content: break;
    }
    if (part.text.empty()) return Json::object();
    return {{part.kind == PartKind::reasoning ? "reasoning_content" : "content", part.text}};
}

// Writes either chunks or one answer. In a stream the events of several choices interleave, and each choice begins with a chunk
// of its role. The last chunk of the last choice has the timings; usage has a chunk of its own without choices, if
// stream_options.include_usage asks for it.
class ChatWriter final : public AnswerWriter {
  public:
    ChatWriter(const Service& service, const ChatTask& task, bool stream, bool usage)
        : head_(completion_head(service, random_id("chatcmpl-"), stream ? "chat.completion.chunk" : "chat.completion")),
          custom_tools_(task.custom_tools), stream_(stream), usage_(usage), logprobs_(task.sampling.logprobs),
          begun_(task.sampling.choices), messages_(task.sampling.choices) {}

    std::string begin(const Usage&) override { return {}; }
    std::string write(const std::vector<Event>& events) override;
    std::string ping() override { return chunk(0, Json::object(), nullptr, {}); }
    std::string end(const Outcome& outcome) override;
    std::string fail(const ApiError& error) override { return error_event(error); }
    Json whole() const override;

  private:
    std::string begin_choice(uint32_t choice);
    std::string chunk(uint32_t choice, Json delta, const char* finish, const Json& logprobs, const Json& timings = {}) const;

    const Json head_;
    const std::set<std::string> custom_tools_;
    const bool stream_, usage_, logprobs_;
    std::vector<bool> begun_;
    std::vector<ChatMessageSoFar> messages_; // of a stream only their finish and the open call
    Outcome outcome_;
};

std::string ChatWriter::write(const std::vector<Event>& events) {
    std::string out;
    for (const Event& event : events) {
        ChatMessageSoFar& message = messages_[event.choice];
        if (event.finish) {
            message.finish = *event.finish;
            continue;
        }
        if (!stream_) {
            message.add(event, custom_tools_);
            continue;
        }
        out += begin_choice(event.choice);
        Json delta = delta_of(message, event.part, custom_tools_), logprobs;
        if (logprobs_ && event.part.kind == PartKind::content) logprobs = {{"content", content_logprobs(event)}};
        const bool has_tokens = !logprobs.is_null() && !logprobs["content"].empty();
        if (!delta.empty() || has_tokens) out += chunk(event.choice, std::move(delta), nullptr, logprobs);
    }
    return out;
}

// The role is in the first chunk of a choice only.
std::string ChatWriter::begin_choice(uint32_t choice) {
    if (begun_[choice]) return {};
    begun_[choice] = true;
    return chunk(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, {});
}

std::string ChatWriter::chunk(uint32_t choice, Json delta, const char* finish, const Json& logprobs, const Json& timings) const {
    Json json = head_;
    json["choices"] = Json::array({{{"index", choice},
                                    {"delta", std::move(delta)},
                                    {"logprobs", logprobs},
                                    {"finish_reason", finish ? Json(finish) : Json()}}});
    if (!timings.is_null()) json["timings"] = timings;
    return data_event(json);
}

std::string ChatWriter::end(const Outcome& outcome) {
    outcome_ = outcome;
    if (!stream_) return {};
    std::string out;
    for (uint32_t i = 0; i < messages_.size(); ++i) {
        out += begin_choice(i);
        const bool last = i + 1 == messages_.size();
        out += chunk(i, Json::object(), finish_name(messages_[i].finish), {}, last ? timings_json(outcome.timings) : Json());
    }
    return out + end_of_events(head_, usage_ ? &outcome.usage : nullptr);
}

Json ChatWriter::whole() const {
    Json json = head_;
    json["choices"] = Json::array();
    for (uint32_t i = 0; i < messages_.size(); ++i)
        json["choices"].push_back({{"index", i},
                                   {"message", messages_[i].json()},
                                   {"logprobs", logprobs_ ? Json{{"content", messages_[i].logprobs}} : Json()},
                                   {"finish_reason", finish_name(messages_[i].finish)}});
    json["usage"] = completion_usage(outcome_.usage);
    json["timings"] = timings_json(outcome_.timings);
    return json;
}

} // namespace

HttpReply chat_completions(Service& service, const HttpRequest& request) {
    return answer(service, request, read_body(service, request, [&](const Json& body) -> Asked {
                      const bool streams = bool_field(body, "stream").value_or(false), usage = wants_usage(body);
                      const ChatTask task = read_chat_task(service, body);
                      return {std::make_shared<Generation>(service, task, request.tenant),
                              std::make_shared<ChatWriter>(service, task, streams, usage), streams};
                  }));
}

} // namespace tq::server
