// HTTP GET, as far as the hub needs it. curl/http.cpp does it with libcurl; no_curl/http.cpp says that this build cannot.
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
    uint64_t first_byte = 0;       // where the body begins in the file (Content-Range); 0 without one
    std::string range_problem;     // a Content-Range that is none; may hold any bytes
    std::string link, explanation; // the headers Link and X-Error-Message; they may hold any bytes
    std::chrono::seconds retry_after{0};
};

// What becomes of a reply while it arrives. false stops it; all may throw.
struct HttpSink {
    std::function<bool(const HttpHead&)> begin;           // once, of a reply with status 2xx, before its body
    std::function<bool(std::span<const std::byte>)> body; // of such a reply; of any other the body is dropped
    std::function<bool()> keep_going;                     // asked often, also while nothing arrives
};

enum class HttpEnd { complete, cut, stopped };

struct HttpResult {
    HttpHead head; // of the last reply; its status is 0 when there was none
    HttpEnd end = HttpEnd::complete;
    std::string problem; // why it was cut; printable
};

class HttpClient {
  public:
    // `token` goes to the host of `endpoint` alone, and only over https or to this machine itself. Where `endpoint` is https,
    // nothing is fetched over http. Throws Error when `endpoint` is no http or https address, and where this build has no
    // libcurl.
    HttpClient(const std::string& endpoint, const std::string& token, std::chrono::seconds connect_timeout,
               std::chrono::seconds stall_timeout);
    ~HttpClient();

    // Follows redirections. `first_byte`: of the part that is asked for, to the end. Throws Error when the address or a
    // redirection is not allowed, or the other side's certificate is not trusted.
    HttpResult get(const std::string& url, uint64_t first_byte, const HttpSink& sink);

    // Whether the token goes out at all.
    bool sends_token() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
