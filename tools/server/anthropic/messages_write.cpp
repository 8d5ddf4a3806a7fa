// The stream of the Messages API: message_start, ping; for each content block content_block_start, deltas, content_block_stop;
// message_delta with the reason and the usage, message_stop. One block is open at a time. Events of the answer decide when it
// changes: text of another kind closes it, and so does a call.
// `message_` is built beside the stream, whether it is sent or not, so whole() and the stream cannot differ.
// A call whose arguments are no JSON, as if the token limit cut it off, keeps the members that came whole (whole_members),
// because a part of a member may be a command of another meaning. Thinking has an empty signature: clients send it back, and
// nothing here checks it.
#include "tools/server/anthropic/messages.h"
#include "tools/server/call_arguments.h"
#include "tools/server/sse.h"
#include <utility>

namespace tq::server::messages_api {
namespace {

Json token_counts(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens)},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.completion_tokens}};
}

const char* stop_reason(const Outcome& outcome) {
    switch (outcome.finish) {
    case FinishReason::tool_calls: return "tool_use";
    case FinishReason::length: return "max_tokens";
    case FinishReason::stop: break;
    }
    return outcome.stop_string ? "stop_sequence" : "end_turn";
}

} // namespace

Writer::Writer(std::string model, bool stream, MakeId make_id) : stream_(stream), make_id_(std::move(make_id)) {
    message_ = {{"id", make_id_("msg_")},   {"type", "message"},      {"role", "assistant"},      {"model", std::move(model)},
                {"content", Json::array()}, {"stop_reason", nullptr}, {"stop_sequence", nullptr}, {"usage", nullptr}};
}

void Writer::send(const char* type, Json fields) {
    if (!stream_) return;
    Json event = {{"type", type}};
    event.update(fields);
    out_ += sse::event(type, event);
}

std::string Writer::ping() { return sse::event("ping", {{"type", "ping"}}); }

std::string Writer::begin(const Usage& usage) {
    message_["usage"] = token_counts(usage);
    send("message_start", {{"message", message_}});
    return std::exchange(out_, {}) + ping();
}

std::string Writer::write(const std::vector<Event>& events) {
    for (const Event& event : events)
        if (!event.finish) part(event.part);
    return std::exchange(out_, {});
}

void Writer::part(const AnswerPart& part) {
    switch (part.kind) {
    case AnswerPart::Kind::reasoning: text(Block::thinking, part.text); break;
    case AnswerPart::Kind::content: text(Block::text, part.text); break;
    case AnswerPart::Kind::call_begin:
        close();
        open(Block::tool_use, {{"type", "tool_use"}, {"id", make_id_("toolu_")}, {"name", part.text}, {"input", Json::object()}});
        break;
    case AnswerPart::Kind::arguments:
        text_ += part.text;
        delta("input_json_delta", "partial_json", part.text);
        break;
    case AnswerPart::Kind::call_end: close(); break;
    }
}

void Writer::open(Block kind, Json block) {
    open_ = kind;
    block_ = std::move(block);
    send("content_block_start", {{"index", message_.at("content").size()}, {"content_block", block_}});
}

void Writer::text(Block kind, const std::string& text) {
    if (open_ != kind) {
        close();
        if (kind == Block::thinking)
            open(kind, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        else
            open(kind, {{"type", "text"}, {"text", ""}});
    }
    text_ += text;
    if (kind == Block::thinking)
        delta("thinking_delta", "thinking", text);
    else
        delta("text_delta", "text", text);
}

void Writer::delta(const char* type, const char* name, const std::string& text) {
    send("content_block_delta", {{"index", message_.at("content").size()}, {"delta", {{"type", type}, {name, text}}}});
}

void Writer::close() {
    if (open_ == Block::none) return;
    if (open_ == Block::thinking) {
        block_["thinking"] = text_;
        delta("signature_delta", "signature", "");
    } else if (open_ == Block::text) {
        block_["text"] = text_;
    } else {
        block_["input"] = read_arguments(text_).value_or(whole_members(text_));
    }
    send("content_block_stop", {{"index", message_.at("content").size()}});
    message_["content"].push_back(std::move(block_));
    open_ = Block::none;
    text_.clear();
}

std::string Writer::end(const Outcome& outcome) {
    close();
    message_["stop_reason"] = stop_reason(outcome);
    if (outcome.stop_string && outcome.finish == FinishReason::stop) message_["stop_sequence"] = *outcome.stop_string;
    message_["usage"] = token_counts(outcome.usage);
    send("message_delta",
         {{"delta", {{"stop_reason", message_.at("stop_reason")}, {"stop_sequence", message_.at("stop_sequence")}}},
          {"usage", message_.at("usage")}});
    send("message_stop", Json::object());
    return std::exchange(out_, {});
}

std::string Writer::fail(const ApiError& error) {
    return sse::event("error", Json::parse(error_body(error, Envelope::anthropic)));
}

} // namespace tq::server::messages_api
