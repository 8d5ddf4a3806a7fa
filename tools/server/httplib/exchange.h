// A request and its reply on a connection, by cpp-httplib: it decodes addresses and bodies, and frames replies. Its own sockets
// and threads are not used: they bound neither what a head may hold nor how long it may take.
#pragma once
#include "tools/server/http.h"
#include "tools/server/httplib/connection.h"
#include "tools/server/httplib/head.h"

namespace tq::server {

// The reply to a request that is refused before a handler sees it; `path` is empty where it is not known.
using Refuse = std::function<HttpReply(int status, const std::string& reason, const std::string& path)>;

class Exchanges {
  public:
    Exchanges(Handler handler, Refuse refuse, const HeadLimits& limits, std::chrono::seconds idle_timeout);
    ~Exchanges();

    // Answers the request whose whole head was received. Returns whether the connection can be used for another one.
    bool answer(Connection& connection);
    // The bytes of a reply that ends the connection.
    std::string refusal(int status, const std::string& reason, const std::string& path = {}) const;

  private:
    class Library;
    std::unique_ptr<Library> library_;
};

} // namespace tq::server
