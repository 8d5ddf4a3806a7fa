// HTTP itself, with handlers of its own: limits, hostile and slow clients, connections that are left open, TLS.
#include "base/error.h"
#include "tests/tools/server/raw_client.h"
#include "tools/server/http_server.h"
#include <algorithm>
#include <atomic>
#include <doctest/doctest.h>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <vector>

using namespace tq;
using namespace tq::server;
using namespace std::chrono_literals;

namespace {

HttpReply refuse(int status, const std::string& reason, const std::string& path) {
    return {.status = status, .body = reason + " at " + path, .type = "text/plain"};
}

// Replies with what it understood.
HttpReply echo(const HttpRequest& request) {
    std::string query;
    for (const auto& [name, value] : request.query) query += name + "=" + value + ";";
    return {.body = request.method + " " + request.path + " [" + query + "] " + std::string(request.header("x-test")) + " " +
                    std::to_string(request.body.size()) + " bytes: " + request.body.substr(0, 100),
            .type = "text/plain",
            .headers = {{"X-Own", "1"}}};
}

bool comes_true(const std::function<bool()>& condition, std::chrono::milliseconds timeout = 20s) {
    for (const auto end = std::chrono::steady_clock::now() + timeout; !condition(); std::this_thread::sleep_for(5ms))
        if (std::chrono::steady_clock::now() > end) return false;
    return true;
}

size_t count(const char* directory) {
    const auto entries = std::filesystem::directory_iterator(directory);
    return size_t(std::distance(begin(entries), end(entries)));
}

struct Echo {
    explicit Echo(HttpOptions options = {}) : server(options, echo, refuse) {}
    HttpServer server;
    std::string ask(const std::string& request) { return RawClient(server.port()).ask(request); }
};

std::string chunked(const std::string& chunks) {
    return "POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks;
}

} // namespace

TEST_CASE("a request comes whole to its handler, and the reply back") {
    Echo echo;
    const std::string reply = echo.ask(post("/a%20b?x=1&y=%3d", "hello", "X-Test: 50%25 =\r\n"));
    CHECK(status_of(reply) == 200);
    CHECK(body_of(reply) == "POST /a b [x=1;y==;] 50%25 = 5 bytes: hello");
    CHECK(reply.find("X-Own: 1\r\n") != reply.npos);
    CHECK(reply.find("Content-Type: text/plain\r\n") != reply.npos);
    CHECK(reply.find("Connection: close\r\n") != reply.npos);
    CHECK(body_of(echo.ask(chunked("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"))) == "POST /a []  11 bytes: hello world");
    CHECK(body_of(echo.ask(post("/form", "--b", "Content-Type: multipart/form-data; boundary=b\r\n"))) ==
          "POST /form []  3 bytes: --b");
    CHECK(status_of(echo.ask(post("/a", "", "Range: bytes=0-1\r\nAccept-Encoding: gzip, br\r\n"))) == 200);
    CHECK(body_of(echo.ask(get("/" + std::string(3000, 'x')))).size() > 3000);
}

TEST_CASE("HEAD has the headers of GET alone, and OPTIONS and DELETE reach the handler") {
    Echo echo;
    const std::string got = echo.ask(get("/a")), head = echo.ask("HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CHECK(status_of(head) == 200);
    CHECK(body_of(head).empty());
    CHECK(head.find("Content-Length: " + std::to_string(body_of(got).size() + 1)) != head.npos);
    CHECK(body_of(echo.ask("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).starts_with("OPTIONS *"));
    CHECK(body_of(echo.ask("DELETE /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).starts_with("DELETE /a"));
    CHECK(body_of(echo.ask("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")).starts_with("PUT /a []  0 bytes"));
}

TEST_CASE("a connection serves many requests, also those that came at once, and HTTP/1.0 one") {
    Echo echo;
    RawClient client(echo.server.port());
    const std::string one = "POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab";
    for (int i = 0; i < 20; i++) {
        client.send(one);
        CHECK(client.read("2 bytes: ab").find("HTTP/1.1 200") == 0);
    }
    client.send(one + one + "\r\n" + get("/last"));
    const std::string all = client.read();
    size_t replies = 0;
    for (size_t at = 0; (at = all.find("HTTP/1.1 200", at)) != all.npos; at++) replies++;
    CHECK(replies == 3);
    CHECK(all.find("GET /last") != all.npos);
    const std::string old = echo.ask("GET /old HTTP/1.0\r\n\r\n");
    CHECK(status_of(old) == 200);
    CHECK(old.find("chunked") == old.npos);
}

TEST_CASE("what could be read in two ways, or is no HTTP, is refused with a sentence") {
    Echo echo;
    const auto refused = [&](const std::string& request) { return status_of(echo.ask(request)); };
    const std::string start = "POST /a HTTP/1.1\r\nHost: x\r\n";
    CHECK(refused(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 400);
    CHECK(refused(start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello") == 400);
    CHECK(refused(start + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello") == 400);
    CHECK(refused(start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n") == 400);
    CHECK(refused(start + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n") == 501);
    CHECK(refused(start + "Transfer-Encoding: %63hunked\r\n\r\n0\r\n\r\n") == 501);
    for (const char* length : {"-1", "+5", "0x5", "5,5", "%35", "", "1e1"})
        CHECK(refused(start + "Content-Length: " + length + "\r\n\r\nhello") == 400);
    CHECK(refused(start + "Content-Length: 99999999999999999999999\r\n\r\nhello") == 413);
    CHECK(refused(start + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello") == 415);
    CHECK(refused(start + "Expect: miracles\r\nContent-Length: 5\r\n\r\nhello") == 417);
    CHECK(refused(start + "Content-Length : 5\r\n\r\nhello") == 400);
    CHECK(refused(start + "A: b\r\n folded\r\n\r\n") == 400);
    CHECK(refused(start + "A: b\nB: c\r\n\r\n") == 400);
    CHECK(refused(start + "A: b\rB: c\r\n\r\n") == 400);
    CHECK(refused(start + std::string("A: b\0c\r\n\r\n", 10)) == 400);
    CHECK(refused("POST /a HTTP/1.1\n\nGET /b HTTP/1.1\n\n") == 400);
    CHECK(refused("GET /a HTTP/1.1\r\n\r\n") == 400);
    CHECK(refused("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
    CHECK(refused("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n") == 400);
    for (const char* address : {"http://", "http:///a", "ftp://a/", "http://user@a/", "a"})
        CHECK(refused(fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", address)) == 400);
    CHECK(refused("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n") == 400);
    CHECK(refused("GET /a HTTP/2.0\r\nHost: a\r\n\r\n") == 505);
    CHECK(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 505);
    CHECK(refused("BREW /coffee HTTP/1.1\r\nHost: a\r\n\r\n") == 501);
    CHECK(echo.ask("\x16\x03\x01\x02 hello TLS") == std::string("\x15\x03\x01\x00\x02\x02\x28", 7)); // an alert, at once
    CHECK(echo.ask(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n").find("more than once how long") !=
          std::string::npos);
    CHECK(status_of(echo.ask(get("/a"))) == 200);
}

TEST_CASE("heads and addresses that are too long are refused, however they come") {
    Echo echo;
    CHECK(status_of(echo.ask(get("/" + std::string(5000, 'a')))) == 414);
    CHECK(status_of(echo.ask(get("/a", "A: " + std::string(9000, 'a') + "\r\n"))) == 431);
    CHECK(status_of(echo.ask(get("/a", std::string(1 << 20, 'a')))) == 431);
    CHECK(status_of(echo.ask(get("/" + std::string(1 << 20, 'a')))) == 431);
    std::string many;
    for (int i = 0; i < 200; i++) many += "H" + std::to_string(i) + ": 1\r\n";
    CHECK(status_of(echo.ask(get("/a", many))) == 431);
    CHECK(status_of(echo.ask(get("/a"))) == 200);
}

TEST_CASE("bodies beyond the limit are refused, whether they say their length or not") {
    Echo echo({.body_bytes = 1000});
    CHECK(status_of(echo.ask(post("/a", std::string(1000, 'a')))) == 200);
    CHECK(status_of(echo.ask(post("/a", std::string(1001, 'a')))) == 413);
    CHECK(status_of(echo.ask(post("/a", std::string(5 << 20, 'a')))) == 413);
    CHECK(status_of(echo.ask(chunked("3e8\r\n" + std::string(1000, 'a') + "\r\n0\r\n\r\n"))) == 200);
    CHECK(status_of(echo.ask(chunked("3e9\r\n" + std::string(1001, 'a') + "\r\n0\r\n\r\n"))) == 413);
    CHECK(status_of(echo.ask(chunked("fffffffffffffff\r\n" + std::string(200'000, 'a')))) == 413);
    std::string small;
    for (int i = 0; i < 2000; i++) small += "1\r\na\r\n";
    CHECK(status_of(echo.ask(chunked(small + "0\r\n\r\n"))) == 413);
    CHECK(status_of(echo.ask(chunked(std::string(4 << 20, '1')))) == 400);                          // a length without end
    CHECK(status_of(echo.ask(chunked("5;" + std::string(4 << 20, 'x') + "\r\nhello\r\n"))) == 400); // its extension, too
    CHECK(status_of(echo.ask(chunked("xyz\r\n\r\n"))) == 400);
    CHECK(status_of(echo.ask(post("/a", "", "Expect: 100-continue\r\n"))) == 200);
    CHECK(status_of(echo.ask(get("/a"))) == 200);
}

TEST_CASE("slow clients hold no thread, and are given up") {
    Echo echo({.threads = 1, .head_timeout = 1500ms, .idle_timeout = 1500ms, .stall_timeout = 1500ms});
    std::vector<RawClient> slow;
    for (int i = 0; i < 50; i++) {
        slow.emplace_back(echo.server.port());
        slow.back().send(i % 2 == 0 ? "GET /a HTTP/1.1\r\nHos" : "");
    }
    CHECK(status_of(echo.ask(get("/a"))) == 200);
    CHECK(status_of(slow[0].read()) == 408);
    CHECK(slow[1].read().empty());
    RawClient body(echo.server.port());
    body.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    CHECK(status_of(body.read()) == 408);
    RawClient idle(echo.server.port());
    idle.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(idle.read("bytes: ").find("200 OK") != std::string::npos);
    CHECK(idle.read().empty()); // closed when it has been idle
    CHECK(comes_true([&] { return echo.server.status().connections == 0; }));
}

TEST_CASE("bodies that come slowly hold no thread, and are given up") {
    Echo echo({.threads = 1, .stall_timeout = 4s});
    const std::string head = "POST /a HTTP/1.1\r\nHost: x\r\n";
    std::vector<RawClient> slow;
    for (int i = 0; i < 60; i++) {
        slow.emplace_back(echo.server.port());
        slow.back().send(head + (i % 2 == 0 ? "Content-Length: 1000000\r\n\r\n{" : "Transfer-Encoding: chunked\r\n\r\n5\r\nab"));
    }
    const auto began = std::chrono::steady_clock::now();
    CHECK(body_of(echo.ask(post("/a", "hello"))).ends_with("5 bytes: hello"));
    CHECK(std::chrono::steady_clock::now() - began < 3500ms);
    CHECK(echo.server.status().threads <= 1);
    RawClient drips(echo.server.port()); // a byte now and then is slower than 64 KiB/s
    drips.send(head + "Content-Length: 1000\r\n\r\n");
    std::thread sender([&] {
        for (int i = 0; i < 400 && drips.send("a"); i++) std::this_thread::sleep_for(50ms);
    });
    for (RawClient& one : slow) CHECK(status_of(one.read()) == 408);
    CHECK(status_of(drips.read("\r\n\r\n")) == 408);
    sender.join();
}

TEST_CASE("the bodies of all requests have a limit together, and room again when they are gone") {
    std::atomic<bool> began = false, go_on = false;
    const auto wait = [&](const HttpRequest& request) {
        began = began || request.path == "/wait";
        if (request.path == "/wait") comes_true([&] { return go_on.load(); });
        return HttpReply{.body = std::to_string(request.body.size())};
    };
    HttpServer server({.bodies_bytes = 2000}, wait, refuse);
    const auto begun = [&](size_t sent) {
        RawClient client(server.port());
        client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + std::string(sent, 'a'));
        return client;
    };
    RawClient first = begun(900);
    CHECK(body_of(RawClient(server.port()).ask(post("/a", "abc"))) == "3"); // so the first one has been read
    RawClient held(server.port());
    held.send(post("/wait", std::string(900, 'a')));
    REQUIRE(comes_true([&] { return began.load(); })); // its handler has it
    CHECK(status_of(begun(900).read()) == 503);
    CHECK(body_of(RawClient(server.port()).ask(post("/a", "abc"))) == "3");
    go_on = true;
    CHECK(body_of(held.read()) == "900");
    CHECK(body_of(RawClient(server.port()).ask(post("/a", std::string(900, 'a')))) == "900");
    first.close();
    CHECK(comes_true([&] { return body_of(RawClient(server.port()).ask(post("/a", std::string(1900, 'a')))) == "1900"; }));
}

TEST_CASE("a body that is not wanted is refused by its head, one that is wanted is asked for") {
    const auto refuse_head = [](const HttpRequest& request) -> std::optional<HttpReply> {
        if (request.path != "/no where" || request.header("x-test") != "1") return std::nullopt;
        return HttpReply{.status = 404, .body = "nothing there", .type = "text/plain", .headers = {{"X-Own", "1"}}};
    };
    HttpServer server({}, echo, refuse, refuse_head);
    const auto head = [](const char* path) {
        return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nX-Test: 1\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n",
                           path);
    };
    const std::string refused = RawClient(server.port()).ask(head("/no%20where"));
    CHECK(status_of(refused) == 404);
    CHECK(body_of(refused) == "nothing there");
    CHECK(refused.find("X-Own: 1\r\n") != refused.npos);
    RawClient wanted(server.port());
    wanted.send(head("/a"));
    CHECK(wanted.read("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    wanted.send(std::string(1000000, 'b'));
    CHECK(wanted.read("1000000 bytes").starts_with("HTTP/1.1 200 OK"));
}

TEST_CASE("urgent requests are answered while all threads are busy") {
    std::atomic<int> began = 0;
    std::atomic<bool> go_on = false;
    const auto wait = [&](const HttpRequest& request) {
        began += request.path == "/wait" ? 1 : 0;
        if (request.path == "/wait") comes_true([&] { return go_on.load(); });
        return HttpReply{};
    };
    HttpServer server({.threads = 2, .is_urgent = [](const std::string&, const std::string& path) { return path == "/health"; }},
                      wait, refuse);
    std::vector<RawClient> busy;
    for (int i = 0; i < 5; i++) {
        busy.emplace_back(server.port());
        busy.back().send(get("/wait"));
    }
    REQUIRE(comes_true([&] { return began == 2; }));
    CHECK(status_of(RawClient(server.port()).ask(get("/health"))) == 200);
    CHECK(began == 2);
    go_on = true;
    for (RawClient& one : busy) CHECK(status_of(one.read()) == 200);
}

TEST_CASE("trailers and extensions of chunks are ignored, what is no chunk is not") {
    Echo echo;
    CHECK(body_of(echo.ask(chunked("5;a=\"b\"\r\nhello\r\n0;x\r\nX-Sum: 1\r\nY: 2\r\n\r\n"))).ends_with("5 bytes: hello"));
    CHECK(body_of(echo.ask(chunked("A\r\nhellohello\r\n00\r\n\r\n"))).ends_with("10 bytes: hellohello"));
    for (const char* wrong : {"5\nhello\n0\n\n", "5\r\nhelloX\r\n0\r\n\r\n", "\r\n\r\n", ";\r\n\r\n", "-1\r\n\r\n",
                              "0x5\r\nhello\r\n0\r\n\r\n", "5\r\r\nhello", "0\r\nA: b\n\r\n", "0\r\n\n"})
        CHECK(status_of(echo.ask(chunked(wrong))) == 400);
    for (size_t cut = 1; cut < 20; ++cut) { // in parts
        RawClient client(echo.server.port());
        const std::string all = chunked("5;x\r\nhello\r\n3\r\n...\r\n0\r\nA: b\r\n\r\n");
        client.send(all.substr(0, all.size() - cut));
        std::this_thread::sleep_for(2ms);
        client.send(all.substr(all.size() - cut));
        CHECK(body_of(client.read()).ends_with("8 bytes: hello..."));
    }
}

TEST_CASE("the last part of a stream comes with its end, and who closes then has read all") {
    const auto stream = [](const HttpRequest&) {
        return HttpReply{.type = "text/event-stream", .stream = [](const Send& send) {
                             send("data: 1\n\n");
                             std::this_thread::sleep_for(20ms);
                             CHECK(send.last("data: [DONE]\n\n"));
                         }};
    };
    HttpServer server({}, stream, refuse);
    for (int i = 0; i < 20; ++i) {
        RawClient client(server.port());
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK(client.read("[DONE]").ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
    }
}

TEST_CASE("one who never reads is given up") {
    std::atomic<int> ended = 0;
    const auto endless = [&](const HttpRequest&) {
        return HttpReply{.stream = [&](const Send& send) {
            const std::string piece(16 << 10, 'x');
            while (send(piece)) {
            }
            ended++;
        }};
    };
    HttpServer server({.stall_timeout = 300ms}, endless, refuse);
    RawClient client(server.port());
    client.send(get("/a"));
    CHECK(comes_true([&] { return ended == 1; }));
}

TEST_CASE("a client that goes away is noticed, before and during the reply") {
    std::atomic<int> began = 0, noticed = 0, sent = 0;
    const auto wait = [&](const HttpRequest& request) {
        const auto until_gone = [&noticed, gone = request.disconnected] {
            if (comes_true(gone)) noticed++;
        };
        began++;
        if (request.path == "/wait") until_gone();
        HttpReply reply{.type = "text/event-stream"};
        if (request.path == "/stream")
            reply.stream = [&, until_gone](const Send& send) {
                send("data: 1\n\n");
                sent++;
                until_gone();
            };
        return reply;
    };
    HttpServer server({}, wait, refuse);
    for (const char* path : {"/wait", "/stream"}) {
        const int before = noticed;
        RawClient client(server.port());
        client.send(get(path));
        if (path == std::string("/stream")) client.read("data: 1\n\n");
        REQUIRE(comes_true([&] { return began > before; }));
        client.close();
        CHECK(comes_true([&] { return noticed == before + 1; }, 10s)); // a handler waits for 20 s
    }
    RawClient client(server.port());
    client.send(get("/wait"));
    REQUIRE(comes_true([&] { return began == 3; }));
    server.stop(); // its client counts as gone
    CHECK(noticed == 3);
}

TEST_CASE("a stream is sent piece by piece, in chunks; one that breaks off lacks its end") {
    std::atomic<bool> go_on = false;
    const auto stream = [&](const HttpRequest& request) {
        return HttpReply{.type = "text/event-stream", .stream = [&, breaks = request.path == "/breaks"](const Send& send) {
                             send("data: 1\n\n");
                             comes_true([&] { return go_on.load(); });
                             send("");
                             if (breaks) throw Error("it breaks");
                             send("data: 2\n\n");
                         }};
    };
    HttpServer server({}, stream, refuse);
    RawClient client(server.port());
    client.send("GET /whole HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string head = client.read("data: 1\n\n\r\n");
    CHECK(head.find("Transfer-Encoding: chunked\r\n") != head.npos);
    CHECK(head.find("Content-Type: text/event-stream\r\n") != head.npos);
    go_on = true;
    CHECK(client.read("0\r\n\r\n") == "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    client.send("GET /again HTTP/1.1\r\nHost: x\r\n\r\n"); // on the same connection
    CHECK(client.read("0\r\n\r\n").find("data: 2") != std::string::npos);
    CHECK(RawClient(server.port()).ask(get("/breaks")).ends_with("data: 1\n\n\r\n"));
    CHECK(RawClient(server.port()).ask("GET / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\n"));
}

TEST_CASE("more requests than threads wait for their turn") {
    std::atomic<int> running = 0, max = 0;
    const auto slow = [&](const HttpRequest&) {
        max = std::max(max.load(), ++running);
        std::this_thread::sleep_for(20ms);
        running--;
        return HttpReply{};
    };
    HttpServer server({.threads = 3}, slow, refuse);
    std::vector<RawClient> clients;
    for (int i = 0; i < 12; i++) clients.emplace_back(server.port());
    for (RawClient& one : clients) one.send(get("/a"));
    for (RawClient& one : clients) CHECK(status_of(one.read()) == 200);
    CHECK(max <= 3);
}

TEST_CASE("a thousand connections that are left open keep nobody out; threads and descriptors come back") {
    const size_t threads = count("/proc/self/task"), descriptors = count("/proc/self/fd");
    {
        Echo echo({.connections = 300});
        std::vector<RawClient> left;
        for (int i = 0; i < 1000; i++) {
            if (i % 400 == 399) left.clear(); // this process may have but 1024 descriptors
            left.emplace_back(echo.server.port());
            REQUIRE(left.back().connected());
            if (i % 3 == 0) left.back().send("GET /half HTT");
        }
        CHECK(status_of(echo.ask(get("/a"))) == 200);
        CHECK(echo.server.status().connections <= 300);
        CHECK(count("/proc/self/task") < threads + 10);
        left.clear();
        CHECK(comes_true([&] { return echo.server.status().connections == 0; }));
    }
    CHECK(comes_true(
        [&] { return count("/proc/self/task") <= threads; })); // a thread that was joined may be listed a moment longer
    CHECK(count("/proc/self/fd") == descriptors);
}

TEST_CASE("a port in use, an unknown address: errors that say so") {
    Echo echo;
    CHECK_THROWS_WITH_AS(Echo({.port = echo.server.port()}), doctest::Contains("is in use"), Error);
    CHECK_THROWS_WITH_AS(Echo({.host = "192.0.2.1"}), doctest::Contains("does not have the address 192.0.2.1"), Error);
    CHECK_THROWS_WITH_AS(Echo({.host = "no such name"}), doctest::Contains("is not known"), Error);
    CHECK(is_loopback("127.0.0.1"));
    CHECK(is_loopback("127.9.9.9"));
    CHECK(is_loopback("::1"));
    CHECK(!is_loopback("0.0.0.0"));
    CHECK(!is_loopback("::"));
    CHECK(!is_loopback("192.0.2.1"));
    CHECK(!is_loopback(""));
}

TEST_CASE("bodies that do not come keep no new client out") {
    Echo echo({.connections = 8});
    std::vector<RawClient> left, clients;
    for (int i = 0; i < 8; i++) left.emplace_back(echo.server.port());
    for (RawClient& one : left) one.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{");
    CHECK(comes_true([&] { return echo.server.status().connections == 8; }));
    for (int i = 0; i < 6; i++) clients.emplace_back(echo.server.port());
    for (RawClient& one : clients) one.send(get("/a"));
    for (RawClient& one : clients) CHECK(status_of(one.read()) == 200);
}
