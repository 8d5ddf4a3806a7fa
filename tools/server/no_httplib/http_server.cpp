// A build without cpp-httplib serves nothing.
#include "tools/server/http_server.h"
#include "base/error.h"

namespace tq::server {

class HttpServer::Loop {};

HttpServer::HttpServer(const HttpOptions&, Handler, std::function<HttpReply(int, const std::string&, const std::string&)>,
                       RefuseHead) {
    fail("this build has no server, as cpp-httplib was missing when it was configured: install it (Debian has it in "
         "libcpp-httplib-dev), and configure and build again");
}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return 0; }
void HttpServer::stop() {}
HttpServer::Status HttpServer::status() const { return {}; }
bool is_loopback(const std::string&) { return true; }

} // namespace tq::server
