#include "tools/server/sse.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq::server;

TEST_CASE("an event is a name and one line of JSON") {
    CHECK(sse::event("ping", {{"type", "ping"}}) == "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    CHECK(sse::event("", {{"a", "1\n2"}}) == "data: {\"a\":\"1\\n2\"}\n\n");
}

TEST_CASE("a part of a character cannot break a stream") { CHECK(sse::event("", "a\xe2\x82") == "data: \"a\xef\xbf\xbd\"\n\n"); }

TEST_CASE("clients ignore a comment, proxies pass a stream on at once") {
    const HttpReply reply = sse::reply([](const Send& send) { send("x"); });
    CHECK(reply.type.starts_with("text/event-stream"));
    CHECK(reply.headers.at("Cache-Control") == "no-cache");
    std::string sent;
    reply.stream(Send([&](std::string_view bytes, bool) { return sent += bytes, true; }));
    CHECK(sent == "x");
}
