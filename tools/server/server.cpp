// From a request to its handler, for all APIs: the host, the page's files, health, the key, whether the model is there, the
// path, the method. Replies and errors have the form of the API that the path belongs to (Envelope), even if no handler sees
// the request.
// What can be refused by the head alone is refused then (refuse_head), before a body is read; the same checks are made again
// with the whole request. A server without keys on a loopback address answers only if the Host is a loopback address, too,
// because a page of another site could otherwise send requests by a name that leads there (DNS rebinding).
// Before ready() nearly all is answered by 503: a model takes a while to load, and a load balancer is to know. A Call lives as
// long as its request, a stream's to the end of the stream; the server waits for all of them before it ends, and each has its
// line in the log.
#include "tools/server/server.h"
#include "base/clock.h"
#include "base/printable.h"
#include "model/text/grammar/interrupt.h"
#include "tools/server/access.h"
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace tq::server {
namespace {

using RequestClock = std::chrono::steady_clock;

Envelope envelope_at(const std::string& path) {
    if (path.starts_with("/api/")) return Envelope::ollama;
    return path == "/v1/messages" || path.starts_with("/v1/messages/") ? Envelope::anthropic : Envelope::openai;
}

std::string new_request_id() {
    static std::atomic<uint64_t> counter = 0;
    thread_local std::mt19937_64 random{std::random_device{}()};
    return fmt::format("req_{:016x}{:08x}", random(), uint32_t(counter++));
}

// The names that clients of these APIs switch on.
const char* error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 503: return "unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

ApiError plain_error(int status, const std::string& reason) {
    ApiError error(status, error_type(status), reason);
    if (status == 503) error.retry_after_s = 1;
    return error;
}

HttpRequest without_slash(HttpRequest request) {
    if (request.path.size() > 1 && request.path.ends_with('/')) request.path.pop_back();
    return request;
}

// These are answered by threads of their own, so a server whose threads are all busy is not taken for dead.
HttpOptions with_urgent_paths(HttpOptions options) {
    options.is_urgent = [](const std::string& method, const std::string& given) {
        const std::string path = without_slash({.path = given}).path;
        return (method == "GET" || method == "HEAD") && (path == "/health" || path == "/v1/health" || path == "/metrics");
    };
    return options;
}

// "/x/*" is for all that begins with "/x/" and goes on.
bool matches(const Endpoint& route, const std::string& path) {
    if (!route.path.ends_with("/*")) return route.path == path;
    const size_t base = route.path.size() - 1;
    return path.size() > base && path.compare(0, base, route.path, 0, base) == 0;
}

bool allows(const Endpoint& route, const std::string& method) {
    return route.method == method || (method == "HEAD" && route.method == "GET");
}

HttpReply options_reply(const std::vector<const Endpoint*>& found) {
    HttpReply reply{.status = 204};
    std::string methods = "OPTIONS";
    for (const Endpoint* one : found) methods += ", " + one->method + (one->method == "GET" ? ", HEAD" : "");
    reply.headers["Allow"] = methods;
    return reply;
}

HttpReply wrong_method(const HttpRequest& request, const std::vector<const Endpoint*>& found) {
    HttpReply allowed = options_reply(found);
    ApiError error = plain_error(
        405, fmt::format("{} takes no {}, only {}", printable(request.path, 100), request.method, allowed.headers["Allow"]));
    HttpReply reply = error_reply(error, found[0]->envelope);
    reply.headers["Allow"] = allowed.headers["Allow"];
    return reply;
}

} // namespace

struct Server::Call {
    explicit Call(Server& server, const HttpRequest& request)
        : server(server), what(fmt::format("{} {}", request.method, printable(request.path, 120))) {
        const std::lock_guard lock(server.mutex_);
        server.calls_++;
    }
    ~Call() {
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(RequestClock::now() - began).count();
        if (server.is_logged(*this)) server.log(fmt::format("{} {} {} ms{}", what, status, ms, remark));
        const std::lock_guard lock(server.mutex_);
        server.calls_--;
        server.ended_.notify_all();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Server& server;
    const std::string what;
    const std::string id = new_request_id();
    const RequestClock::time_point began = RequestClock::now();
    int status = 0;
    bool asks_health = false, is_tried = false; // is_tried: its head alone was looked at
    std::string remark;
};

Server::Server(ServerOptions options)
    : options_(std::move(options)), guards_hosts_(options_.api_keys.empty() && is_loopback(options_.http.host)),
      http_(
          with_urgent_paths(options_.http), [this](const HttpRequest& request) { return answer(request); },
          [this](int status, const std::string& reason, const std::string& path) {
              log(fmt::format("{} {} refused: {}", path.empty() ? "-" : printable(path, 120), status, reason));
              return error_reply(plain_error(status, reason), envelope_at(path));
          },
          [this](const HttpRequest& request) { return refuse_head(request); }) {}

Server::~Server() { stop(); }

// Load balancers ask for the health every few seconds, which would hide all else in a log.
bool Server::is_logged(const Call& call) {
    if (call.is_tried) return false;
    return !call.asks_health || health_.exchange(call.status) != call.status || options_.log_health;
}

void Server::ready(std::vector<Endpoint> routes) {
    routes_ = std::move(routes);
    is_ready_ = true;
}

void Server::begin_drain(uint32_t retry_after_s) { drain_retry_s_ = std::max(retry_after_s, 1u); }

// A Call ends when its body's function has returned. The connection may still be with its worker then, so that the last bytes are
// waited for, too.
bool Server::wait_until_idle(std::chrono::milliseconds timeout) {
    const auto end = RequestClock::now() + timeout;
    std::unique_lock lock(mutex_);
    if (!ended_.wait_until(lock, end, [&] { return calls_ == 0; })) return false;
    lock.unlock();
    while (http_.status().answering > 0) {
        if (RequestClock::now() >= end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

void Server::stop() { http_.stop(); }

void Server::log(const std::string& line) const {
    if (options_.log) options_.log(fmt::format("{} {}", local_time_text("%H:%M:%S"), line));
}

HttpReply Server::answer(const HttpRequest& request) {
    const auto one = std::make_shared<Call>(*this, request);
    HttpRequest changed = without_slash(request);
    HttpReply reply;
    try {
        if (const Endpoint* route = find(changed, *one, reply)) reply = call(*route, changed, *one);
    } catch (const ApiError& error) {
        reply = error_reply(error, envelope_at(changed.path));
    }
    finish(reply, changed, one);
    return reply;
}

// Runs find() on the head alone. Call `unseen` counts as running, so that a drain waits for it, but is not logged: if the head is
// accepted, the whole request will be. A refusal is logged by a Call of its own.
std::optional<HttpReply> Server::refuse_head(const HttpRequest& request) {
    HttpRequest changed = without_slash(request);
    HttpReply reply;
    {
        Call unseen(*this, request);
        unseen.is_tried = true;
        try {
            if (find(changed, unseen, reply)) return std::nullopt;
        } catch (const ApiError& error) {
            reply = error_reply(error, envelope_at(changed.path));
        }
    }
    finish(reply, changed, std::make_shared<Call>(*this, request));
    return reply;
}

// Completes every reply, of any handler or error: it gets the id that the log has, under the names of both OpenAI and Anthropic.
void Server::finish(HttpReply& reply, const HttpRequest& request, const std::shared_ptr<Call>& call) {
    allow_origin(reply, request, options_.cors_origins);
    reply.headers["x-request-id"] = reply.headers["request-id"] = call->id;
    reply.headers["X-Content-Type-Options"] = "nosniff";
    call->status = reply.status;
    if (reply.status == 499) call->remark = ", the client went away";
    follow(reply, call, request.disconnected);
}

// The call ends with its reply's body.
void Server::follow(HttpReply& reply, std::shared_ptr<Call> call, std::function<bool()> disconnected) {
    if (!reply.stream) return;
    reply.stream = [call = std::move(call), disconnected = std::move(disconnected),
                    stream = std::move(reply.stream)](const Send& send) {
        bool is_gone = false, ended = false;
        try {
            stream(Send([&](std::string_view bytes, bool is_last) {
                ended = ended || is_last;
                is_gone = is_gone || !(is_last ? send.last(bytes) : send(bytes));
                return !is_gone;
            }));
        } catch (const std::exception& error) {
            call->remark = fmt::format(", broke off: {}", printable(error.what(), 300));
            throw;
        }
        is_gone = is_gone || (!ended && disconnected && disconnected()); // also if nothing was left to be sent
        if (is_gone) call->remark = ", the client went away";
    };
}

ApiError Server::draining() const {
    ApiError error = plain_error(503, "the server is being stopped, and takes no more requests");
    error.retry_after_s = drain_retry_s_;
    return error;
}

HttpReply Server::health() const {
    if (!is_ready_) return error_reply(plain_error(503, "Loading model"), Envelope::openai);
    if (drain_retry_s_ > 0) return error_reply(plain_error(503, "the server is being stopped"), Envelope::openai);
    return {.body = R"({"status":"ok"})"};
}

// Returns the route of a request that may be answered; null if `reply` has been set.
// The order is that of trust. The Host and the Origin come first, so that pages of other sites learn nothing. The page's files
// and the health need no key, because a browser's first request and a load balancer have none. Then the key; and only whoever has
// it learns whether the model is loaded and which paths there are. A drain refuses new work at last, and lets reading through.
const Endpoint* Server::find(HttpRequest& request, Call& one, HttpReply& reply) const {
    const auto is = [&](HttpReply made) {
        reply = std::move(made);
        return static_cast<const Endpoint*>(nullptr);
    };
    const auto& origins = options_.cors_origins;
    if (guards_hosts_ && is_foreign_host(request, origins))
        throw plain_error(403, fmt::format("this server is for its own machine, not for {}: give it an API key (--api-key), or "
                                           "allow that site with --cors-origin",
                                           printable(request.header("host"), 100)));
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (reads && options_.page)
        if (auto file = options_.page(request)) return is(*std::move(file));
    if (guards_hosts_ && is_from_other_site(request, origins))
        throw plain_error(403, fmt::format("pages of {} may not use this server: allow that with --cors-origin",
                                           printable(request.header("origin"), 100)));
    one.asks_health = request.path == "/health" || request.path == "/v1/health";
    if (one.asks_health) return is(health());
    const bool is_open = request.method == "OPTIONS" || (options_.public_metrics && request.path == "/metrics");
    if (!is_open && !options_.api_keys.empty()) {
        const auto key = accepted_key(request, options_.api_keys);
        if (!key) throw plain_error(401, "an API key of this server is needed: Authorization: Bearer KEY, or x-api-key: KEY");
        if (!options_.shared_cache) request.tenant = tenant_of(*key);
    }
    if (!is_ready_) throw plain_error(503, "Loading model");

    std::vector<const Endpoint*> found;
    for (const Endpoint& route : routes_)
        if (matches(route, request.path)) found.push_back(&route);
    if (request.method == "OPTIONS") return is(options_reply(found));
    if (found.empty())
        throw plain_error(404, fmt::format("there is nothing at {}: there are /v1/chat/completions, /v1/responses, /v1/messages, "
                                           "/v1/models, /api/chat and others (docs/serve.md)",
                                           printable(request.path, 100)));
    const auto fitting = std::ranges::find_if(found, [&](const Endpoint* one) { return allows(*one, request.method); });
    if (fitting == found.end()) return is(wrong_method(request, found));
    if (!reads && drain_retry_s_ > 0) return is(error_reply(draining(), (*fitting)->envelope));
    return *fitting;
}

// An error that no handler foresaw may name files or say how the server is made. So its text goes to the log alone, and the
// client gets the id under which it is there.
HttpReply Server::call(const Endpoint& route, const HttpRequest& request, const Call& one) {
    // A request whose grammar is still compiled when a drain begins would come too late.
    const grammar::InterruptScope until_over(
        [&] { return drain_retry_s_ > 0 || (request.disconnected && request.disconnected()); });
    try {
        return route.handle(request);
    } catch (const ApiError& error) {
        return error_reply(error, route.envelope);
    } catch (const grammar::Interrupted&) {
        return drain_retry_s_ > 0 ? error_reply(draining(), route.envelope) : HttpReply{.status = 499}; // which nobody reads
    } catch (const std::exception& error) {
        log(fmt::format("{} failed ({}): {}", one.what, one.id, printable(error.what(), 1000)));
        return error_reply(
            plain_error(500, fmt::format("the server could not answer because of an error of its own, which its log "
                                         "names under {}",
                                         one.id)),
            route.envelope);
    }
}

} // namespace tq::server
