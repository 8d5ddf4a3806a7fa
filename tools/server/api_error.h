// A request that is answered with an error, in the envelope of the API that it used.
#pragma once
#include "base/error.h"
#include "tools/server/http.h"
#include <string>

namespace tq::server {

struct ApiError : Error {
    int status;
    std::string type;  // OpenAI's: invalid_request_error, authentication_error, not_found_error, rate_limit_error, server_error
    std::string param; // the field of the request that is wrong, "messages[1].content"; empty: none
    std::string code;  // OpenAI's machine-readable one, such as context_length_exceeded; empty: none
    uint32_t retry_after_s = 0; // 0: no such header

    ApiError(int status, std::string type, const std::string& message, std::string param = {}, std::string code = {})
        : Error(message), status(status), type(std::move(type)), param(std::move(param)), code(std::move(code)) {}
};

// Throws a 400 that names the field.
template <class... Args>
[[noreturn]] void bad_request(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
    throw ApiError(400, "invalid_request_error", fmt::format(format, std::forward<Args>(args)...), param);
}

enum class Envelope {
    openai,    // {"error": {"message", "type", "param", "code"}}
    ollama,    // {"error": message}
    anthropic, // {"type": "error", "error": {"type", "message", "details": {"error_code", "unsupported"}}, "request_id"}
};
std::string error_body(const ApiError& error, Envelope envelope);
HttpReply error_reply(const ApiError& error, Envelope envelope);

} // namespace tq::server
