#include "tools/server/http_client.h"
#include <httplib.h>

namespace tq::server {

std::optional<HttpAnswer> http_get(const std::string& url, const std::string& path, const std::string& key,
                                   std::chrono::milliseconds timeout) {
    constexpr size_t most = 1 << 20;
    httplib::Client client(url);
    if (!client.is_valid()) return std::nullopt;
    client.set_connection_timeout(timeout);
    client.set_read_timeout(timeout);
    httplib::Headers headers;
    if (!key.empty()) headers.emplace("Authorization", "Bearer " + key);
    std::string body;
    const auto result = client.Get(path, headers, [&](const char* bytes, size_t count) {
        body.append(bytes, std::min(count, most - body.size()));
        return body.size() < most;
    });
    if (!result) return std::nullopt;
    return HttpAnswer{result->status, std::move(body)};
}

} // namespace tq::server
