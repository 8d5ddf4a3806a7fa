// The handling of every request before and after its handler: who may ask, which handler answers, how errors are told, what is
// logged.
#pragma once
#include "tools/server/api_error.h"
#include "tools/server/http_server.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

namespace tq::server {

struct Endpoint {
    std::string method, path; // a path that ends with "/*" is that of all below it
    Handler handle;
    Envelope envelope = Envelope::openai;
};

struct ServerOptions {
    HttpOptions http;
    std::vector<std::string> api_keys; // none: anybody may ask
    bool shared_cache = false;         // all keys see the same prefix cache
    bool public_metrics = false;       // /metrics needs no key
    // Pages of these sites may ask: "https://chat.example.com", "*".
    std::vector<std::string> cors_origins;
    // A file of the page, which needs no key and is there while the model is loading; nullopt: the page has no such file.
    std::function<std::optional<HttpReply>(const HttpRequest&)> page;
    std::function<void(const std::string& line)> log; // called by many threads
    bool log_health = false;                          // logs each GET /health; else only when the status has changed
};

class Server {
  public:
    // Listens at once: /health answers 503 until ready(). Throws Error if it cannot listen.
    explicit Server(ServerOptions options);
    ~Server();

    void ready(std::vector<Endpoint> routes); // once
    // From now on every POST is answered with 503, as is /health.
    void begin_drain(uint32_t retry_after_s);
    // Waits until no request is being answered, and no reply is still being sent: whether that came true.
    bool wait_until_idle(std::chrono::milliseconds timeout);
    void stop();

    uint16_t port() const { return http_.port(); }
    HttpServer::Status status() const { return http_.status(); }

  private:
    struct Call; // one that is answered

    HttpReply answer(const HttpRequest& request);
    std::optional<HttpReply> refuse_head(const HttpRequest& request);
    const Endpoint* find(HttpRequest& request, Call& call, HttpReply& reply) const;
    void finish(HttpReply& reply, const HttpRequest& request, const std::shared_ptr<Call>& call);
    HttpReply call(const Endpoint& route, const HttpRequest& request, const Call& call);
    HttpReply health() const;
    ApiError draining() const;
    bool is_logged(const Call& call);
    void follow(HttpReply& reply, std::shared_ptr<Call> call, std::function<bool()> disconnected);
    void log(const std::string& line) const;

    const ServerOptions options_;
    const bool guards_hosts_; // only this machine may ask, and without a key: pages of other sites must not
    std::vector<Endpoint> routes_;
    std::atomic<bool> is_ready_ = false;
    std::atomic<uint32_t> drain_retry_s_ = 0;
    std::atomic<int> health_ = 0; // the status of the last answer to /health; 0: there was none
    std::mutex mutex_;
    std::condition_variable ended_;
    size_t calls_ = 0;
    HttpServer http_; // last: its threads use the rest
};

} // namespace tq::server
