// The parts of replies that chat completions, text completions and, in part, the other APIs have in common. The scheduler gives
// times and counts; tokens that the prefix cache found are in cache_n and not in prompt_n. Token bytes are a list of numbers,
// because a token may end within a character.
#include "tools/server/openai/reply.h"
#include "tools/server/chat_parts.h"
#include "tools/server/sse.h"

namespace tq::server {

static Json token_json(const std::string& bytes, float logprob) {
    Json json = {{"token", bytes}, {"logprob", logprob}, {"bytes", Json::array()}};
    for (const char byte : bytes) json["bytes"].push_back(uint8_t(byte));
    return json;
}

// Thinking and tool calls have no log probabilities in this API: the list belongs to the content.
Json content_logprobs(const Event& event) {
    Json list = Json::array();
    if (event.part.kind != AnswerPart::Kind::content) return list;
    for (const TokenText& token : event.tokens) {
        Json json = token_json(token.bytes, token.logprob);
        json["top_logprobs"] = Json::array();
        for (const auto& [bytes, logprob] : token.top) json["top_logprobs"].push_back(token_json(bytes, logprob));
        list.push_back(std::move(json));
    }
    return list;
}

void append(Json& list, Json more) {
    for (Json& entry : more) list.push_back(std::move(entry));
}

Json completion_head(const Service& service, const std::string& id, const char* object) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {{"id", id},
            {"object", object},
            {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
            {"model", service.model_name()},
            {"system_fingerprint", service.options.build}};
}

Json completion_usage(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

// llama.cpp's fields: a rate is 0 if there was no time to divide by, because JSON has no infinity.
Json timings_json(const serving::RequestTimings& timings) {
    Json json = {{"cache_n", timings.cached_tokens}};
    const auto add = [&](const std::string& name, uint32_t n, uint64_t ns) {
        const double ms = double(ns) / 1e6;
        json[name + "_n"] = n;
        json[name + "_ms"] = ms;
        json[name + "_per_token_ms"] = n > 0 ? ms / n : 0;
        json[name + "_per_second"] = ns > 0 ? n * 1e9 / double(ns) : 0;
    };
    add("prompt", timings.prompt_tokens, timings.prompt_ns);
    add("predicted", timings.decoded_tokens, timings.decode_ns);
    if (timings.drafted_tokens > 0) {
        json["draft_n"] = timings.drafted_tokens;
        json["draft_n_accepted"] = timings.accepted_tokens;
    }
    return json;
}

const char* finish_name(FinishReason reason) {
    switch (reason) {
    case FinishReason::length: return "length";
    case FinishReason::tool_calls: return "tool_calls";
    case FinishReason::stop: break;
    }
    return "stop";
}

std::string data_event(const Json& json) { return sse::event("", json); }
HttpReply json_reply(const Json& json) { return {.body = dump_text(json)}; }

std::string error_event(const ApiError& error) { return data_event(Json::parse(error_body(error, Envelope::openai))); }

std::string end_of_events(const Json& head, const Usage* usage) {
    std::string out;
    if (usage) {
        Json json = head;
        json["choices"] = Json::array();
        json["usage"] = completion_usage(*usage);
        out = data_event(json);
    }
    return out + "data: [DONE]\n\n";
}

// Keeps only what a streamed reply still needs of its request: the body may be some MiB, and a stream may last for minutes.
HttpRequest without_body(const HttpRequest& request) {
    HttpRequest kept;
    kept.tenant = request.tenant;
    kept.disconnected = request.disconnected;
    return kept;
}

bool wants_usage(const Json& body) {
    const Json* options = object_field(body, "stream_options");
    return options && bool_field(*options, "include_usage", "stream_options").value_or(false);
}

// Three fields mean the same: OpenAI's response_format, and llama.cpp's json_schema and grammar. Two of them in one request may
// contradict each other, so they are refused rather than ranked.
Format read_formats(const Json& body) {
    Format format = read_format(object_field(body, "response_format"), "response_format", true);
    const auto set = [&](Format::Kind kind, const char* field) {
        if (format.kind != Format::Kind::text)
            bad_request(field, "\"{}\" is one of several that say what the answer must be: leave all but one out", field);
        format.kind = kind;
    };
    if (const Json* schema = member(body, "json_schema")) {
        set(Format::Kind::json_schema, "json_schema");
        format.schema = *schema;
    }
    if (const auto gbnf = text_field(body, "grammar"); gbnf && !gbnf->empty()) {
        set(Format::Kind::gbnf, "grammar");
        format.gbnf = *gbnf;
    }
    return format;
}

} // namespace tq::server
