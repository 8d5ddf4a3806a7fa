// tq-run serve as a user starts and stops it.
#include "tests/support/child_process.h"
#include "tests/tools/server/raw_client.h"
#include "tests/tools/tq-run/serving.h"
#include <doctest/doctest.h>

using namespace tq;
using test::Serving;

namespace {

constexpr const char* endless =
    R"({"messages": [{"role": "user", "content": "Tell me a story."}], "ignore_eos": true, "max_tokens": 1500, "stream": true})";

} // namespace

TEST_CASE("serve: starts, answers, drains on SIGTERM, and ends with 0") {
    Serving serving("--device cpu -np 2");
    const uint16_t port = serving.port();
    CHECK(serving.said.find("slots     2, each of up to 2048 tokens") != std::string::npos);
    CHECK(body_of(RawClient(port).ask(get("/health"))) == R"({"status":"ok"})");
    CHECK(RawClient(port).ask(get("/")).find("<!doctype html>") != std::string::npos);
    const std::string answer = RawClient(port).ask(
        post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "My name is Mira."}], "temperature": 0})"));
    CHECK(answer.find("Mira") != std::string::npos);
    for (const char* path : {"/props", "/slots", "/metrics", "/v1/models"})
        CHECK(status_of(RawClient(port).ask(get(path))) == 200);

    RawClient client(port);
    client.send(post("/v1/chat/completions", endless));
    std::string streamed = client.read("Once");
    serving.signal(SIGTERM);
    serving.until("tq-run: no more requests are taken");
    streamed += client.read();
    CHECK(streamed.find("data: [DONE]") != std::string::npos); // to its end
    CHECK(serving.exit() == "exit 0");
}

TEST_CASE("serve: says what drafts") {
    Serving serving("--device cpu --spec ngram");
    serving.port();
    CHECK(serving.said.find("drafts    prompt lookup, at most ") != std::string::npos);
}

TEST_CASE("serve: a second signal ends it at once") {
    Serving serving("--device cpu");
    RawClient client(serving.port());
    client.send(post("/v1/chat/completions", endless));
    client.read("Once");
    serving.signal(SIGINT);
    serving.signal(SIGTERM);
    CHECK(serving.exit() == "exit 130");
}

TEST_CASE("serve: refuses what would be unsafe or cannot be") {
    const auto refused = [](std::vector<std::string> flags) {
        flags.insert(flags.begin(), {"serve", "--device", "cpu"});
        return test::tq_run(flags).error;
    };
    CHECK(refused({"--host", "0.0.0.0", "--port", "0"}).find("no key is asked for") != std::string::npos);
    CHECK(refused({"--host", "192.0.2.1", "--api-key", "k"}).find("does not have the address") != std::string::npos);
    CHECK(refused({"--ssl-cert-file", "cert.pem"}).find("belong together") != std::string::npos);
    CHECK(refused({"--api-key", ""}).find("--api-key: it is empty") != std::string::npos);
    CHECK(refused({"--port", "70000"}).find("--port") != std::string::npos);
    CHECK(refused({"--seed", "1"}).find("each request") != std::string::npos);
    for (const char* file : {"/nonexistent.gguf", "/dev/null"}) { // nobody is told that the server listens
        const std::string error = refused({"-m", file, "--port", "0"});
        CHECK(error.find(file) != std::string::npos);
        CHECK(error.find("listening") == std::string::npos);
    }
    Serving serving("--device cpu --api-key a,b --api-key c");
    const uint16_t port = serving.port();
    CHECK(refused({"--port", std::to_string(port)}).find("is in use") != std::string::npos);
    for (const char* key : {"a", "b", "c"})
        CHECK(status_of(RawClient(port).ask(get("/v1/models", std::string("x-api-key: ") + key + "\r\n"))) == 200);
    CHECK(status_of(RawClient(port).ask(get("/v1/models"))) == 401);
    serving.signal(SIGINT);
    CHECK(serving.exit() == "exit 0");
}
