// HTTP for the hub, and for questions to other machines. curl/http.cpp implements it with libcurl; no_curl/http.cpp reports that
// this build has none.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tq {

struct HttpHead {
    int status = 0;
    uint64_t first_byte = 0;       // offset of the body in the file (Content-Range); 0 without one
    std::string range_problem;     // an invalid Content-Range; may contain any bytes
    std::string link, explanation; // the headers Link and X-Error-Message; may contain any bytes
    std::chrono::seconds retry_after{0};
};

// The receiver of a reply. Returning false stops it; all may throw.
struct HttpSink {
    std::function<bool(const HttpHead&)> begin;           // once, of a reply with status 2xx, before its body
    std::function<bool(std::span<const std::byte>)> body; // called for the body of a successful reply; other bodies are dropped
    std::function<bool()> keep_going;                     // called often, also while nothing arrives
};

enum class HttpEnd { complete, cut, stopped };

struct HttpResult {
    HttpHead head; // of the last reply; status 0 when there was none
    HttpEnd end = HttpEnd::complete;
    std::string problem;      // why it was interrupted; printable
    std::string refusal = {}; // the beginning of the body of a reply with another status than 2xx; may contain any bytes
};

class HttpClient {
  public:
    // `token` is sent only to the host of `endpoint`, and only over https or to this machine itself. If `endpoint` is https,
    // nothing is fetched over http. Throws Error when `endpoint` is not an http or https address, or if this build has no
    // libcurl.
    HttpClient(const std::string& endpoint, const std::string& token, std::chrono::seconds connect_timeout,
               std::chrono::seconds stall_timeout);
    ~HttpClient();

    // Follows redirections. `first_byte`: the start of the requested range, which extends to the end. Throws Error when the
    // address or a redirection is not allowed, or the server's certificate is not trusted.
    HttpResult get(const std::string& url, uint64_t first_byte, const HttpSink& sink);

    // Sends a body of JSON. `key` is sent as a bearer token, also over http: whoever uses it has to know the network.
    // Redirections are not followed. The calling thread gets no SIGPIPE from then on. Throws Error as get().
    HttpResult post(const std::string& url, const std::string& key, const std::string& body, const HttpSink& sink);

    // True if the token is sent at all.
    bool sends_token() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
