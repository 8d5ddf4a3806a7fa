// Serves HTTP/1.1: connections, threads, time limits.
#pragma once
#include "tools/server/http.h"
#include <chrono>
#include <cstdint>
#include <optional>

namespace tq::server {

struct HttpOptions {
    std::string host = "127.0.0.1";
    uint16_t port = 0;                      // 0: the system chooses
    std::string certificate_file, key_file; // PEM; both or neither: TLS
    uint64_t body_bytes = uint64_t(32) << 20;
    uint64_t bodies_bytes = uint64_t(128) << 20; // of all whose replies are not sent yet; more are refused (503)
    uint32_t threads = 64;                       // maximum of requests that are answered at once; others wait
    uint32_t connections = 1024;                 // maximum; a new one closes the one that has been silent longest
    std::chrono::milliseconds head_timeout{20'000}, idle_timeout{60'000}, stall_timeout{30'000};
    // Whether a request has threads of its own, so that it is answered however many others wait.
    std::function<bool(const std::string& method, const std::string& path)> is_urgent;
};

// Returns the reply if the head alone decides it; nothing if the body has to be read.
using RefuseHead = std::function<std::optional<HttpReply>(const HttpRequest&)>;

class HttpServer {
  public:
    // Listens, and answers with `handler`, which throws nothing, on threads of its own. refuse: the reply to a request that no
    // handler sees, of a status with a reason; the path is empty if it is not known. Throws Error if it cannot listen.
    HttpServer(const HttpOptions& options, Handler handler,
               std::function<HttpReply(int status, const std::string& reason, const std::string& path)> refuse,
               RefuseHead refuse_head = {});
    ~HttpServer(); // stop()
    uint16_t port() const;
    // Closes all connections, and returns when their handlers have. Their requests are disconnected().
    void stop();

    struct Status {
        size_t connections, threads;
        size_t answering; // requests whose replies have not been sent whole
    };
    Status status() const;

  private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

// True for an address that only this machine reaches. Throws Error for a name that nobody knows.
bool is_loopback(const std::string& host);

} // namespace tq::server
