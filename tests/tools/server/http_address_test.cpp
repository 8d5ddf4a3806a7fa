// Addresses and headers: how they are read, and what of a reply is written.
#include "tests/tools/server/raw_client.h"
#include "tools/server/http_server.h"
#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace tq;
using namespace tq::server;

static HttpReply refuse_plainly(int status, const std::string& reason, const std::string&) {
    return {.status = status, .body = reason, .type = "text/plain"};
}

TEST_CASE("an address as for a proxy is its path, and its host replaces what the header says") {
    const auto tell = [](const HttpRequest& request) {
        return HttpReply{.body = fmt::format("{} at {}, {}", request.path, request.header("host"), request.query.size()),
                         .type = "text/plain"};
    };
    HttpServer server({}, tell, refuse_plainly);
    const auto told = [&](const std::string& address) {
        return body_of(
            RawClient(server.port()).ask(fmt::format("GET {} HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n", address)));
    };
    CHECK(told("http://a.example:80/v1/models?x=1&y=%20") == "/v1/models at a.example:80, 2");
    CHECK(told("HTTPS://a.example") == "/ at a.example, 0");
    CHECK(told("http://a.example?x") == "/ at a.example, 1");
    CHECK(told("/a%2Fb%zz+%C3%A9") == "/a/b%zz+\xC3\xA9 at other, 0");
}

TEST_CASE("a reply without content has no length; a header that would end the head is left out") {
    const auto none = [](const HttpRequest&) {
        return HttpReply{.status = 204, .headers = {{"X-Bad", "a\r\nB: c"}, {"X-Good", "d"}}};
    };
    HttpServer server({}, none, refuse_plainly);
    RawClient client(server.port());
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string head = client.read("\r\n\r\n");
    CHECK(head.starts_with("HTTP/1.1 204 No Content\r\n"));
    for (const char* wrong : {"Content-Length", "Content-Type", "X-Bad", "B: c"}) CHECK(head.find(wrong) == head.npos);
    CHECK(head.find("X-Good: d\r\n") != head.npos);
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"); // on the same connection
    CHECK(client.read("\r\n\r\n") == head);
}

TEST_CASE("a reply that says that nothing has changed ends with its head") {
    const auto unchanged = [](const HttpRequest&) { return HttpReply{.status = 304, .headers = {{"ETag", "\"a\""}}}; };
    HttpServer server({}, unchanged, refuse_plainly);
    RawClient client(server.port());
    for (int i = 0; i < 2; i++) { // on one connection
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
        const std::string head = client.read("\r\n\r\n");
        CHECK(head.starts_with("HTTP/1.1 304 Not Modified\r\n"));
        CHECK(head.find("ETag: \"a\"\r\n") != head.npos);
        for (const char* wrong : {"Content-Length", "Content-Type"}) CHECK(head.find(wrong) == head.npos);
    }
}
