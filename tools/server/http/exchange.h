// A request and its reply on a connection: addresses are decoded, replies are framed.
#pragma once
#include "tools/server/http/connection.h"
#include "tools/server/http_server.h"

namespace tq::server {

// The reply to a request that is refused before a handler sees it; `path` is empty if it is not known.
using Refuse = std::function<HttpReply(int status, const std::string& reason, const std::string& path)>;

class Exchanges {
  public:
    Exchanges(Handler handler, Refuse refuse, RefuseHead refuse_head, std::chrono::seconds idle_timeout)
        : handler_(std::move(handler)), refuse_(std::move(refuse)), refuse_head_(std::move(refuse_head)),
          idle_timeout_(idle_timeout) {}

    // Answers the request whose head and body were received. Returns whether the connection can be used for another one.
    bool answer(Connection& connection) const;
    // The bytes of a reply that ends the connection, if the body of a request with this head is not wanted.
    std::optional<std::string> refusal(const Head& head) const;
    // The bytes of a reply that ends the connection.
    std::string refusal(int status, const std::string& reason, const std::string& path = {}) const;

  private:
    std::string keep_alive(bool closes) const; // a header

    const Handler handler_;
    const Refuse refuse_;
    const RefuseHead refuse_head_;
    const std::chrono::seconds idle_timeout_;
};

} // namespace tq::server
