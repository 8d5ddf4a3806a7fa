// The server around its handlers: keys, sites, routes, envelopes, loading, drain, the log.
#include "base/error.h"
#include "model/text/grammar/json_schema.h"
#include "tests/tools/server/raw_client.h"
#include "tools/server/server.h"
#include <atomic>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

using namespace tq;
using namespace tq::server;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

std::vector<Endpoint> few_routes() {
    const auto echo = [](const HttpRequest& request) {
        return HttpReply{.body = request.method + " " + request.path + " tenant " + request.tenant, .type = "text/plain"};
    };
    const auto fails = [](const HttpRequest& request) -> HttpReply {
        if (request.body == "bad") bad_request("field", "the field is bad");
        if (request.body == "full") {
            ApiError error(429, "rate_limit_error", "the queue is full");
            error.retry_after_s = 7;
            throw error;
        }
        throw std::runtime_error("secret details");
    };
    return {{"GET", "/v1/models", echo},
            {"GET", "/v1/models/*", echo},
            {"POST", "/v1/chat/completions", echo},
            {"POST", "/fails", fails},
            {"POST", "/v1/messages", fails, Envelope::anthropic}};
}

struct Running {
    explicit Running(ServerOptions options = {}, bool ready = true) : server(logging(std::move(options))) {
        if (ready) server.ready(few_routes());
    }
    ServerOptions logging(ServerOptions options) {
        options.log = [this](const std::string& line) {
            const std::lock_guard lock(mutex);
            log += line + "\n";
        };
        return options;
    }
    std::string ask(const std::string& request) { return RawClient(server.port()).ask(request); }
    std::string logged() {
        const std::lock_guard lock(mutex);
        return log;
    }

    std::mutex mutex;
    std::string log;
    Server server;
};

std::string message_of(const std::string& reply) {
    const Json body = Json::parse(body_of(reply), nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"].value("message", "") : "no error: " + reply;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

} // namespace

TEST_CASE("health, loading and readiness") {
    Running running({.page =
                         [](const HttpRequest& request) {
                             return request.path == "/" ? std::optional(HttpReply{.body = "page", .type = "text/html"})
                                                        : std::nullopt;
                         }},
                    false);
    CHECK(status_of(running.ask(get("/health"))) == 503);
    CHECK(message_of(running.ask(get("/health"))) == "Loading model");
    CHECK(status_of(running.ask(post("/v1/chat/completions", "{}"))) == 503);
    CHECK(message_of(running.ask(post("/v1/messages", "{}"))) == "Loading model");
    CHECK(body_of(running.ask(get("/"))) == "page");
    running.server.ready(few_routes());
    CHECK(body_of(running.ask(get("/health"))) == R"({"status":"ok"})");
    CHECK(status_of(running.ask(post("/v1/chat/completions", "{}"))) == 200);
    CHECK(status_of(running.ask("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == 200);
}

TEST_CASE("the health is told while all threads are busy, however it is asked") {
    std::atomic<bool> waits = false, go_on = false;
    Running running({.http = {.threads = 1}}, false);
    running.server.ready({{"GET", "/wait", [&](const HttpRequest&) {
                               waits = true;
                               while (!go_on) std::this_thread::sleep_for(1ms);
                               return HttpReply{};
                           }}});
    RawClient busy(running.server.port());
    busy.send(get("/wait"));
    while (!waits) std::this_thread::sleep_for(1ms);
    std::vector<RawClient> clients;
    for (const char* line : {"GET /health", "GET /health/", "HEAD /health", "HEAD /v1/health/"}) {
        clients.emplace_back(running.server.port());
        clients.back().send(fmt::format("{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", line));
        CHECK(status_of(clients.back().read("\r\n\r\n")) == 200);
    }
    go_on = true;
    CHECK(status_of(busy.read()) == 200);
}

TEST_CASE("paths and methods") {
    Running running;
    CHECK(body_of(running.ask(get("/v1/models"))) == "GET /v1/models tenant ");
    CHECK(body_of(running.ask(get("/v1/models/"))) == "GET /v1/models tenant ");
    CHECK(body_of(running.ask(get("/v1/models/Qwen/Qwen3%2d4B"))) == "GET /v1/models/Qwen/Qwen3-4B tenant ");
    const std::string head = running.ask("HEAD /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CHECK(status_of(head) == 200);
    CHECK(body_of(head).empty());
    const std::string missing = running.ask(get("/v1/modles%0a"));
    CHECK(status_of(missing) == 404);
    CHECK(message_of(missing).find("nothing at /v1/modles\\x0a") != std::string::npos);
    CHECK(has(message_of(missing), "/v1/chat/completions"));
    const std::string wrong = running.ask(get("/v1/chat/completions"));
    CHECK(status_of(wrong) == 405);
    CHECK(has(wrong, "Allow: OPTIONS, POST\r\n"));
    CHECK(status_of(running.ask("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == 204);
}

TEST_CASE("errors in the envelope of their API, and none tells what broke inside") {
    Running running;
    const Json bad = Json::parse(body_of(running.ask(post("/fails", "bad"))));
    CHECK(bad["error"]["param"] == "field");
    CHECK(bad["error"]["type"] == "invalid_request_error");
    const std::string full = running.ask(post("/v1/messages", "full"));
    CHECK(status_of(full) == 429);
    CHECK(has(full, "Retry-After: 7\r\n"));
    CHECK(Json::parse(body_of(full))["type"] == "error");
    CHECK(Json::parse(body_of(full))["error"]["type"] == "rate_limit_error");
    const std::string broken = running.ask(post("/fails", "x"));
    CHECK(status_of(broken) == 500);
    CHECK(!has(broken, "secret"));
    CHECK(has(running.logged(), "secret details"));
    const std::string refused = running.ask("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n");
    CHECK(status_of(refused) == 400);
    CHECK(Json::parse(body_of(refused))["type"] == "error");
    CHECK(Json::parse(body_of(running.ask("nonsense\r\n\r\n")))["error"]["type"] == "invalid_request_error");
    CHECK(has(full, "x-request-id: req_"));
}

TEST_CASE("keys: Bearer or x-api-key, for all but health and page; each has a tenant") {
    Running running({.api_keys = {"first%20key", "second"}, .page = [](const HttpRequest& request) {
                         return request.path == "/" ? std::optional(HttpReply{}) : std::nullopt;
                     }});
    const auto asked = [&](const std::string& header) { return running.ask(get("/v1/models", header)); };
    CHECK(status_of(asked("")) == 401);
    CHECK(status_of(asked("Authorization: Bearer wrong\r\n")) == 401);
    CHECK(status_of(asked("Authorization: Bearer \r\n")) == 401);
    CHECK(status_of(asked("Authorization: second\r\n")) == 401);
    CHECK(status_of(asked("x-api-key: secon\r\n")) == 401);
    CHECK(status_of(asked("x-api-key: secondd\r\n")) == 401);
    CHECK(status_of(asked("x-api-key: secondsecond\r\n")) == 401);
    const std::string first = body_of(asked("Authorization: Bearer first%20key\r\n")),
                      second = body_of(asked("x-api-key: second\r\n"));
    CHECK(first.starts_with("GET /v1/models tenant "));
    CHECK(first.size() > std::string("GET /v1/models tenant ").size() + 16);
    CHECK(first != second);
    CHECK(second == body_of(asked("authorization: bearer second\r\n")));
    CHECK(!has(first, "first%20key"));
    CHECK(status_of(running.ask(get("/health"))) == 200);
    CHECK(status_of(running.ask(get("/"))) == 200);
    CHECK(status_of(running.ask(get("/nowhere"))) == 401);
    const Json refused = Json::parse(body_of(running.ask(post("/v1/messages", "{}"))));
    CHECK(refused["error"]["type"] == "authentication_error");
    CHECK(refused["type"] == "error");
    CHECK(!has(running.logged(), "second"));
    Running shared({.api_keys = {"a"}, .shared_cache = true});
    CHECK(body_of(shared.ask(get("/v1/models", "x-api-key: a\r\n"))) == "GET /v1/models tenant ");
}

TEST_CASE("metrics without a key, where that is allowed, and nothing else") {
    Running running({.api_keys = {"a"}, .public_metrics = true}, false);
    running.server.ready({{"GET", "/metrics", [](const HttpRequest&) { return HttpReply{}; }},
                          {"GET", "/props", [](const HttpRequest&) { return HttpReply{}; }}});
    CHECK(status_of(running.ask(get("/metrics"))) == 200);
    CHECK(status_of(running.ask(get("/metrics/"))) == 200);
    CHECK(status_of(running.ask(get("/props"))) == 401);
    CHECK(status_of(running.ask(get("/metrics/x"))) == 401);
    CHECK(status_of(Running({.api_keys = {"a"}}).ask(get("/metrics"))) == 401);
}

TEST_CASE("pages of other sites: refused, or allowed by name") {
    Running closed;
    CHECK(status_of(closed.ask(get("/v1/models", "Origin: https://evil.example\r\n"))) == 403);
    CHECK(status_of(closed.ask(post("/v1/chat/completions", "{}", "Origin: null\r\n"))) == 403);
    CHECK(status_of(closed.ask(get("/v1/models", "Origin: http://localhost\r\n"))) == 200); // its own page
    CHECK(status_of(closed.ask(get("/v1/models", "Origin: app://obsidian.md\r\n"))) == 200);
    const std::string plain = closed.ask(get("/v1/models"));
    CHECK(!has(plain, "Access-Control"));
    CHECK(status_of(closed.ask("GET /v1/models HTTP/1.1\r\nHost: rebound.evil.example:8080\r\nConnection: close\r\n\r\n")) ==
          403);
    for (const char* host : {"localhost:8080", "127.0.0.1:8080", "[::1]:8080", "host.docker.internal:1", "box", "box.local"})
        CHECK(status_of(closed.ask(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\nConnection: close\r\n\r\n")) ==
              200);

    Running open({.cors_origins = {"https://chat.example"}});
    const std::string allowed = open.ask(get("/v1/models", "Origin: https://chat.example\r\n"));
    CHECK(has(allowed, "Access-Control-Allow-Origin: https://chat.example\r\n"));
    CHECK(has(allowed, "Vary: Origin\r\n"));
    CHECK(status_of(open.ask(get("/v1/models", "Origin: https://evil.example\r\n"))) == 403);
    const std::string preflight =
        open.ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://chat.example\r\n"
                 "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-own\r\n\r\n");
    CHECK(status_of(preflight) == 204);
    CHECK(has(preflight, "Access-Control-Allow-Headers: authorization,x-own\r\n"));
    CHECK(has(preflight, "Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"));

    Running keyed({.api_keys = {"k"}, .cors_origins = {"*"}}); // a preflight brings no key
    CHECK(status_of(keyed.ask(
              "OPTIONS /v1/models HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nOrigin: https://b.example\r\n\r\n")) ==
          204);
    CHECK(has(keyed.ask(get("/v1/models", "Origin: https://b.example\r\n")),
              "Access-Control-Allow-Origin: https://b.example\r\n")); // of the 401, too
}

TEST_CASE("who may not ask, and what is not there, is told so before a body is read") {
    Running running({.api_keys = {"k"}});
    const auto ask = [&](const std::string& path, const std::string& headers) { // the body never comes
        return running.ask("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n" + headers + "\r\n");
    };
    const std::string refused = ask("/v1/chat/completions", "");
    CHECK(status_of(refused) == 401);
    CHECK(has(refused, "x-request-id: req_"));
    CHECK(has(message_of(refused), "an API key of this server is needed"));
    CHECK(status_of(ask("/v1/messages", "x-api-key: wrong\r\n")) == 401);
    CHECK(has(ask("/v1/messages", "x-api-key: wrong\r\n"), "authentication_error"));
    CHECK(status_of(ask("/nowhere", "x-api-key: k\r\n")) == 404);
    CHECK(status_of(ask("/v1/models", "x-api-key: k\r\n")) == 405);
    CHECK(status_of(running.ask(
              "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: k\r\nContent-Length: 99999999\r\n\r\n")) == 413);
    running.server.begin_drain(9);
    CHECK(has(ask("/v1/chat/completions", "x-api-key: k\r\n"), "Retry-After: 9\r\n"));
    const std::string log = running.logged();
    CHECK(has(log, "POST /v1/chat/completions 401 "));
    CHECK(has(log, "POST /nowhere 404 "));
}

TEST_CASE("files of the page are served behind a proxy with a host of its own, and what it asks is refused with a sentence") {
    Running running({.page = [](const HttpRequest& request) {
        return request.path == "/main.js" ? std::optional(HttpReply{.body = "file"}) : std::nullopt;
    }});
    CHECK(body_of(running.ask(get("/main.js", "Origin: https://chat.example\r\n"))) == "file");
    const std::string refused = running.ask(get("/v1/models", "Origin: https://chat.example\r\n"));
    CHECK(status_of(refused) == 403);
    CHECK(has(message_of(refused), "--cors-origin"));
}

TEST_CASE("a drain answers what runs, and refuses what comes") {
    Running running({}, false);
    std::atomic<bool> began = false, go_on = false;
    auto all = few_routes();
    all.push_back({"POST", "/slow", [&](const HttpRequest&) {
                       return HttpReply{.type = "text/plain", .stream = [&](const Send& send) {
                                            send("one ");
                                            began = true;
                                            while (!go_on) std::this_thread::sleep_for(1ms);
                                            send("two");
                                        }};
                   }});
    running.server.ready(std::move(all));
    RawClient client(running.server.port());
    client.send(post("/slow", "{}"));
    while (!began) std::this_thread::sleep_for(1ms);
    running.server.begin_drain(9);
    const std::string refused = running.ask(post("/v1/chat/completions", "{}"));
    CHECK(status_of(refused) == 503);
    CHECK(has(refused, "Retry-After: 9\r\n"));
    CHECK(status_of(running.ask(get("/health"))) == 503);
    CHECK(status_of(running.ask(get("/v1/models"))) == 200);
    CHECK(!running.server.wait_until_idle(20ms));
    go_on = true;
    CHECK(running.server.wait_until_idle(20s));
    CHECK(has(client.read(), "two"));
    running.server.stop();
    CHECK(!RawClient(running.server.port()).connected());
}

TEST_CASE("what a grammar's compilation has not begun to answer ends with its client, and with a drain") {
    nlohmann::ordered_json schema; // of several keywords, each of which takes some time
    for (int i = 0; i < 4000; ++i) {
        const std::string name = fmt::format("k{}", i);
        schema["allOf"].push_back({{"properties", {{name, {{"type", "string"}}}}}, {"required", {name}}});
    }
    std::atomic<int> began = 0, ended = 0;
    Running running({}, false);
    running.server.ready({{"POST", "/compile", [&](const HttpRequest&) -> HttpReply {
                               began++;
                               struct AtEnd {
                                   std::atomic<int>& ended;
                                   ~AtEnd() { ended++; }
                               } at_end{ended};
                               for (const auto end = std::chrono::steady_clock::now() + 90s;
                                    std::chrono::steady_clock::now() < end;)
                                   grammar::json_schema_gbnf(schema);
                               return {};
                           }}});
    const auto comes_true = [](const std::function<bool()>& condition) {
        for (const auto end = std::chrono::steady_clock::now() + 60s; !condition(); std::this_thread::sleep_for(1ms))
            if (std::chrono::steady_clock::now() > end) return false;
        return true;
    };
    {
        RawClient gone(running.server.port());
        gone.send(post("/compile", "{}"));
        REQUIRE(comes_true([&] { return began == 1; }));
    }
    CHECK(comes_true([&] { return ended == 1; }));
    RawClient waits(running.server.port());
    waits.send(post("/compile", "{}"));
    REQUIRE(comes_true([&] { return began == 2; }));
    running.server.begin_drain(9);
    CHECK(running.server.wait_until_idle(60s));
    CHECK(status_of(waits.read()) == 503);
}

TEST_CASE("a drain waits for replies that are still being sent") {
    const std::string body(size_t(32) << 20, 'x'); // more than sockets hold
    Running running({}, false);
    running.server.ready({{"POST", "/large", [&](const HttpRequest&) { return HttpReply{.body = body, .type = "text/plain"}; }}});
    RawClient client(running.server.port());
    client.send(post("/large", "{}"));
    const std::string head = client.read("\r\n\r\n");
    running.server.begin_drain(9);
    CHECK(!running.server.wait_until_idle(300ms));
    std::string reply;
    std::thread reader([&] { reply = head + client.read(); });
    CHECK(running.server.wait_until_idle(20s));
    running.server.stop();
    reader.join();
    CHECK(body_of(reply).size() == body.size());
}

TEST_CASE("a body counts until its reply is sent, since what was made of it is in memory as long") {
    std::atomic<bool> go_on = false;
    Running running({.http = {.bodies_bytes = 2'000'000}}, false);
    running.server.ready({{"POST", "/stream", [&](const HttpRequest&) {
                               HttpReply reply;
                               reply.stream = [&](const Send& send) { send("begun"), go_on.wait(false); };
                               return reply;
                           }}});
    const std::string request = post("/stream", std::string(900'000, 'a')); // more than comes with its head
    std::vector<RawClient> clients;
    for (int i = 0; i < 2; i++) {
        clients.emplace_back(running.server.port()).send(request);
        CHECK(has(clients.back().read("begun"), "200 OK"));
    }
    CHECK(status_of(running.ask(request)) == 503);
    go_on = true;
    go_on.notify_all();
    for (RawClient& client : clients) client.read();
    CHECK(status_of(running.ask(request)) == 200);
}

TEST_CASE("a line of the log for each request: no body, no key, and nothing that steers a terminal") {
    Running running({.api_keys = {"the-key"}});
    running.ask(post("/v1/chat/completions", "the-prompt", "x-api-key: the-key\r\n"));
    running.ask(get("/a%1b[31m"));
    CHECK(running.server.wait_until_idle(20s));
    const std::string log = running.logged();
    CHECK(has(log, "POST /v1/chat/completions 200 "));
    CHECK(has(log, "GET /a\\x1b[31m 401 "));
    CHECK(!has(log, "the-prompt"));
    CHECK(!has(log, "the-key"));
}

TEST_CASE("a client that goes away before anything was written is logged as such, streamed or not") {
    for (const bool streams : {false, true}) {
        std::atomic<bool> began = false;
        Running running({}, false);
        const auto wait = [&](const HttpRequest& request) {
            began = true;
            for (const auto end = std::chrono::steady_clock::now() + 20s;
                 !request.disconnected() && std::chrono::steady_clock::now() < end;)
                std::this_thread::sleep_for(1ms);
        };
        running.server.ready({{"POST", "/wait", [&](const HttpRequest& request) {
                                   HttpReply reply{.status = streams ? 200 : 499};
                                   if (streams)
                                       reply.stream = [&wait, request](const Send&) { wait(request); };
                                   else
                                       wait(request);
                                   return reply;
                               }}});
        {
            RawClient gone(running.server.port());
            gone.send(post("/wait", "{}"));
            for (int i = 0; !began && i < 20000; i++) std::this_thread::sleep_for(1ms);
        }
        CHECK(running.server.wait_until_idle(20s));
        CHECK(has(running.logged(), streams ? "POST /wait 200 " : "POST /wait 499 "));
        CHECK(has(running.logged(), " ms, the client went away\n"));
    }
}

TEST_CASE("of the questions for the health those with news are logged, unless all are wanted") {
    for (const bool all : {false, true}) {
        Running running({.log_health = all}, false);
        const auto ask_twice = [&] {
            for (const char* path : {"/health", "/v1/health"}) running.ask(get(path));
            running.ask(get("/v1/models"));
        };
        ask_twice(); // loading
        running.server.ready(few_routes());
        ask_twice();
        running.server.begin_drain(9);
        ask_twice();
        CHECK(running.server.wait_until_idle(20s));
        std::string lines;
        std::istringstream log(running.logged());
        for (std::string line; std::getline(log, line);)
            if (!has(line, "/v1/models")) lines += line.substr(9, line.find(' ', line.find("/health")) + 4 - 9) + "\n";
        const std::string some = "GET /health 503\nGET /health 200\nGET /health 503\n";
        const std::string every = "GET /health 503\nGET /v1/health 503\nGET /health 200\nGET /v1/health 200\n"
                                  "GET /health 503\nGET /v1/health 503\n";
        CHECK(lines == (all ? every : some));
    }
}
