// A build without cpp-httplib reaches no server.
#include "tools/server/http_client.h"

namespace tq::server {

std::optional<HttpAnswer> http_get(const std::string&, const std::string&, const std::string&, std::chrono::milliseconds) {
    return std::nullopt;
}

} // namespace tq::server
