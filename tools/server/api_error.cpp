#include "tools/server/api_error.h"
#include <nlohmann/json.hpp>
#include <random>

namespace tq::server {
namespace {

using ErrorJson = nlohmann::ordered_json;

// The types that Anthropic's clients know, by status.
const char* anthropic_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

ErrorJson text_or_null(const std::string& text) { return text.empty() ? ErrorJson() : ErrorJson(text); }

std::string request_id() {
    std::random_device random;
    return fmt::format("req_{:08x}{:08x}{:08x}", random(), random(), random());
}

} // namespace

std::string error_body(const ApiError& error, Envelope envelope) {
    ErrorJson body;
    if (envelope == Envelope::anthropic) {
        body = {{"type", "error"},
                {"error", {{"type", anthropic_type(error.status)}, {"message", error.what()}}},
                {"request_id", request_id()}};
        if (error.code.starts_with("thread_"))
            body["error"]["details"] = {{"error_code", error.code}, {"unsupported", ErrorJson::array({error.param})}};
    } else if (envelope == Envelope::ollama) {
        body = {{"error", error.what()}};
    } else {
        body = {{"error",
                 {{"message", error.what()},
                  {"type", error.type},
                  {"param", text_or_null(error.param)},
                  {"code", text_or_null(error.code)}}}};
    }
    return body.dump(-1, ' ', false, ErrorJson::error_handler_t::replace);
}

HttpReply error_reply(const ApiError& error, Envelope envelope) {
    HttpReply reply{.status = error.status, .body = error_body(error, envelope)};
    if (error.retry_after_s > 0) reply.headers["Retry-After"] = std::to_string(error.retry_after_s);
    return reply;
}

} // namespace tq::server
