// HTTP as the handlers see it: a request, a reply, and a reply that is sent piece by piece.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace tq::server {

struct HttpRequest {
    std::string method, path, body;
    std::multimap<std::string, std::string> headers; // names in lower case
    std::multimap<std::string, std::string> query;
    std::string tenant;                 // of the API key: which part of the prefix cache it may see
    std::function<bool()> disconnected; // the client is gone; may be asked from the handler and from a body's function, any time

    // The value of a header, empty if it is missing.
    std::string_view header(std::string_view name) const {
        const auto found = headers.find(std::string(name));
        return found == headers.end() ? std::string_view() : std::string_view(found->second);
    }
};

// Sends a body part by part, each at once. Each call returns false if the client is gone.
class Send {
  public:
    using Sink = std::function<bool(std::string_view bytes, bool is_last)>;
    explicit Send(Sink sink) : sink_(std::move(sink)) {}

    bool operator()(std::string_view bytes) const { return sink_(bytes, false); }
    // The last part goes out with the end of the body, so that a client that closes after it has read all.
    bool last(std::string_view bytes) const { return sink_(bytes, true); }

  private:
    Sink sink_;
};

struct HttpReply {
    int status = 200;
    std::string body;
    std::string type = "application/json; charset=utf-8";
    std::map<std::string, std::string> headers = {};
    // Instead of `body`: called once, sends all of it, and returns when that is done. If it throws, the connection ends.
    std::function<void(const Send& send)> stream = {};
};

using Handler = std::function<HttpReply(const HttpRequest&)>;

} // namespace tq::server
