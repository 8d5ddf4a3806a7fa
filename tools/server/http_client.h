// A request to a server.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace tq::server {

struct HttpAnswer {
    int status;
    std::string body; // at most 1 MiB of it
};

// GET of a path at "http://127.0.0.1:8080", also https, with a bearer key if it is not empty. Returns nullopt if no server
// answers in time. Throws Error if `url` has another form, and for https in a build without OpenSSL.
std::optional<HttpAnswer> http_get(const std::string& url, const std::string& path, const std::string& key,
                                   std::chrono::milliseconds timeout);

} // namespace tq::server
