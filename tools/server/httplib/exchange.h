// A request and its reply on a connection, by cpp-httplib: it decodes addresses, and frames replies. Its own sockets
// and threads are not used: they bound neither what a head may hold nor how long it may take.
#pragma once
#include "tools/server/http_server.h"
#include "tools/server/httplib/connection.h"

namespace tq::server {

// The reply to a request that is refused before a handler sees it; `path` is empty where it is not known.
using Refuse = std::function<HttpReply(int status, const std::string& reason, const std::string& path)>;

class Exchanges {
  public:
    Exchanges(Handler handler, Refuse refuse, RefuseHead refuse_head, std::chrono::seconds idle_timeout);
    ~Exchanges();

    // Answers the request whose head and body were received. Returns whether the connection can be used for another one.
    bool answer(Connection& connection);
    // The bytes of a reply that ends the connection, where the body of a request with this head is not wanted.
    std::optional<std::string> refusal(const Head& head) const;
    // The bytes of a reply that ends the connection.
    std::string refusal(int status, const std::string& reason, const std::string& path = {}) const;

  private:
    class Library;
    std::unique_ptr<Library> library_;
};

} // namespace tq::server
