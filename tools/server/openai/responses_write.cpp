// The stream of the Responses API. Each event has a sequence number. The order is response.created, response.in_progress; for
// each item output_item.added, its parts and deltas, their done events, output_item.done; at the end response.completed, or
// response.incomplete if the limit of tokens cut the answer.
// One item is open at a time. text_ and logprobs_ gather what its deltas said, because the done events and the response itself
// repeat all of it. A custom tool's input cannot be streamed: it is within the JSON of the function as which the tool was
// offered, so its one delta comes at the end (close_call). The response is built whether it is streamed or not.
#include "tools/server/call_arguments.h"
#include "tools/server/openai/reply.h"
#include "tools/server/openai/responses.h"
#include "tools/server/sse.h"
#include <cmath>
#include <utility>

namespace tq::server::responses_api {
namespace {

Json token_counts(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// 0.7 rather than 0.699999988.
double shortened(float value) { return std::round(double(value) * 1e6) / 1e6; }

} // namespace

Writer::Writer(const Request& request, std::string model, uint64_t created_unix_s, MakeId make_id)
    : custom_tools_(request.task.custom_tools), sealed_reasoning_(request.sealed_reasoning), make_id_(std::move(make_id)) {
    const SamplerOptions& sampling = request.task.sampling.options;
    response_ = {{"id", make_id_("resp_")},
                 {"object", "response"},
                 {"created_at", created_unix_s},
                 {"status", "in_progress"},
                 {"background", false},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"model", std::move(model)},
                 {"output", Json::array()},
                 {"temperature", shortened(sampling.temperature)},
                 {"top_p", shortened(sampling.top_p)},
                 {"usage", nullptr}};
    response_.update(request.echo);
}

void Writer::send(const char* type, Json fields) {
    Json event = {{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    out_ += sse::event(type, event);
}

void Writer::send_response(const char* type) { send(type, {{"response", response_}}); }

std::string Writer::take() { return std::exchange(out_, {}); }

Json Writer::place() const { return {{"item_id", item_.at("id")}, {"output_index", response_.at("output").size()}}; }

Json Writer::text_part(const std::string& text) const {
    if (open_ == Item::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", logprobs_}};
}

std::string Writer::begin(const Usage&) {
    send_response("response.created");
    send_response("response.in_progress");
    return take();
}

std::string Writer::ping() {
    send_response("response.in_progress");
    return take();
}

std::string Writer::write(const std::vector<Event>& events) {
    for (const Event& event : events)
        if (!event.finish) part(event.part, content_logprobs(event));
    return take();
}

// A part opens the item that it belongs to, and this closes the item before. The text of a custom tool is not sent in pieces: it
// is known at the call's end.
void Writer::part(const AnswerPart& part, Json logprobs) {
    switch (part.kind) {
    case AnswerPart::Kind::reasoning:
        open_text(Item::reasoning);
        text(part.text, {});
        break;
    case AnswerPart::Kind::content:
        open_text(Item::message);
        text(part.text, std::move(logprobs));
        break;
    case AnswerPart::Kind::call_begin: open_call(part.text); break;
    case AnswerPart::Kind::arguments:
        text_ += part.text;
        if (open_ == Item::function_call) {
            Json fields = place();
            fields["delta"] = part.text;
            send("response.function_call_arguments.delta", std::move(fields));
        }
        break;
    case AnswerPart::Kind::call_end: close(part.valid ? "completed" : "incomplete"); break;
    }
}

void Writer::open(Item kind, Json item) {
    close("completed");
    open_ = kind;
    item_ = std::move(item);
    send("response.output_item.added", {{"output_index", response_.at("output").size()}, {"item", item_}});
}

void Writer::open_text(Item kind) {
    if (open_ == kind) return;
    if (kind == Item::reasoning)
        open(kind, {{"id", make_id_("rs_")},
                    {"type", "reasoning"},
                    {"status", "in_progress"},
                    {"summary", Json::array()},
                    {"content", Json::array()}});
    else
        open(kind, {{"id", make_id_("msg_")},
                    {"type", "message"},
                    {"status", "in_progress"},
                    {"role", "assistant"},
                    {"content", Json::array()}});
    Json fields = place();
    fields.update({{"content_index", 0}, {"part", text_part("")}});
    send("response.content_part.added", std::move(fields));
}

void Writer::open_call(const std::string& name) {
    const bool custom = custom_tools_.count(name) > 0;
    Json item = {{"id", make_id_(custom ? "ctc_" : "fc_")},
                 {"type", custom ? "custom_tool_call" : "function_call"},
                 {"status", "in_progress"},
                 {"call_id", make_id_("call_")},
                 {"name", name},
                 {custom ? "input" : "arguments", ""}};
    open(custom ? Item::custom_call : Item::function_call, std::move(item));
}

void Writer::text(const std::string& delta, Json logprobs) {
    text_ += delta;
    Json fields = place();
    fields.update({{"content_index", 0}, {"delta", delta}});
    if (open_ == Item::message) {
        fields["logprobs"] = logprobs;
        append(logprobs_, std::move(logprobs));
    }
    send(open_ == Item::reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", std::move(fields));
}

void Writer::close_text() {
    Json fields = place();
    fields.update({{"content_index", 0}, {"text", text_}});
    if (open_ == Item::message) fields["logprobs"] = logprobs_;
    send(open_ == Item::reasoning ? "response.reasoning_text.done" : "response.output_text.done", std::move(fields));
    fields = place();
    fields.update({{"content_index", 0}, {"part", text_part(text_)}});
    send("response.content_part.done", std::move(fields));
    item_["content"].push_back(text_part(text_));
    if (open_ == Item::reasoning && sealed_reasoning_) item_["encrypted_content"] = std::string(reasoning_seal) + text_;
}

// Clients match an answer to a call by call_id, and the item's id only places the events. The done events say all of the
// arguments again, as clients may read these alone.
void Writer::close_call() {
    const bool custom = open_ == Item::custom_call;
    const char* name = custom ? "input" : "arguments";
    if (custom) text_ = custom_input(text_);
    Json fields = place();
    if (custom) {
        fields["delta"] = text_;
        send("response.custom_tool_call_input.delta", fields);
        fields.erase("delta");
    } else {
        fields["name"] = item_.at("name");
    }
    fields[name] = text_;
    send(custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done", std::move(fields));
    item_[name] = text_;
}

void Writer::close(const char* status) {
    if (open_ == Item::none) return;
    if (open_ == Item::reasoning || open_ == Item::message)
        close_text();
    else
        close_call();
    item_["status"] = status;
    send("response.output_item.done", {{"output_index", response_.at("output").size()}, {"item", item_}});
    if (remember) remember(item_);
    response_["output"].push_back(std::move(item_));
    open_ = Item::none;
    text_.clear();
    logprobs_ = Json::array();
}

std::string Writer::end(const Outcome& outcome) {
    const bool cut = outcome.finish == FinishReason::length;
    close(cut ? "incomplete" : "completed");
    response_["status"] = cut ? "incomplete" : "completed";
    if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response_["usage"] = token_counts(outcome.usage);
    send_response(cut ? "response.incomplete" : "response.completed");
    return take();
}

// The stream has begun with status 200, so an error can only be an event. The item that was open stays open: it is not at its
// end.
std::string Writer::fail(const ApiError& error) {
    response_["status"] = "failed";
    response_["error"] = {{"code", error.code.empty() ? error.type : error.code}, {"message", error.what()}};
    send_response("response.failed");
    return take();
}

} // namespace tq::server::responses_api
