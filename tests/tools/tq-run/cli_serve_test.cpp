// tq-run serve as a user starts and stops it.
#include "tests/support/child_process.h"
#include "tests/support/sanitized.h"
#include "tests/tools/server/raw_client.h"
#include "tests/tools/tq-run/serving.h"
#include <algorithm>
#include <chrono>
#include <doctest/doctest.h>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#ifdef __linux__
#include <sched.h>
#endif
#include <string>
#include <vector>

using namespace tq;
using test::Serving;

namespace {

constexpr const char* endless =
    R"({"messages": [{"role": "user", "content": "Tell me a story."}], "ignore_eos": true, "max_tokens": 1500, "stream": true})";

#ifdef __linux__
size_t resident_mib(pid_t process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:")) return size_t(std::stoull(line.substr(6))) >> 10;
    return 0;
}
#endif

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

TEST_CASE("serve: --reuse-answers goes on behind an answer") {
#ifdef __x86_64__
    const std::vector<std::string> environment{"TQ_CPU=avx2"}; // with which a token has other bits in a prompt than in an answer
#else
    const std::vector<std::string> environment;
#endif
    Serving serving("--device cpu --reuse-answers --cache-disk 0", environment);
    const uint16_t port = serving.port();
    const auto turn = [&](const std::string& more) {
        return nlohmann::json::parse(body_of(RawClient(port).ask(
            post("/v1/chat/completions",
                 R"({"temperature": 0, "max_tokens": 40, "messages": [{"role": "user", "content": "Tell me of a tree."})" + more +
                     "]}"))));
    };
    const nlohmann::json first = turn("");
    const uint32_t before = first["usage"]["total_tokens"];
    const nlohmann::json message{{"role", "assistant"}, {"content", first["choices"][0]["message"]["content"]}};
    const nlohmann::json second = turn(", " + message.dump() + R"(, {"role": "user", "content": "And of a river."})");
    CHECK(second["usage"]["prompt_tokens_details"]["cached_tokens"] >= before - 2); // its last token, and the end, were not run
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

#ifdef __linux__
TEST_CASE("serve: the memory of a large request goes back to the system") {
    if (test::sanitized) return; // sanitizers keep memory that was freed
    Serving serving("--device cpu");
    const uint16_t port = serving.port();
    std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "metadata": [1)";
    CHECK(status_of(RawClient(port).ask(post("/v1/chat/completions", body + "]}"))) == 200);
    const size_t before = resident_mib(serving.process());
    while (body.size() < 8 << 20) body += R"(,{"a":{"b":[]}})";
    CHECK(status_of(RawClient(port).ask(post("/v1/chat/completions", body + "]}"))) == 200);
    CHECK(resident_mib(serving.process()) < before + 32);
    serving.signal(SIGTERM);
    CHECK(serving.exit() == "exit 0");
}
// While it lives, this thread and the processes that it starts have one processor.
class OneProcessor {
  public:
    OneProcessor() {
        REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
        cpu_set_t one = {};
        for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
            if (CPU_ISSET(i, &before_)) CPU_SET(i, &one);
        REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    }
    ~OneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }

  private:
    cpu_set_t before_ = {};
};

// On one processor many schemas would take many times as long as one, on any machine.
TEST_CASE("serve: schemas that are compiled for nobody, or when it is stopped, are given up") {
    constexpr int size = test::sanitized ? 2000 : 16000;
    const OneProcessor processor;
    Serving serving("--device cpu -np 1");
    const uint16_t port = serving.port();
    std::string values = "1", parts = R"({"$ref": "#/$defs/e", "type": "integer"})"; // little to read, and much to compile
    for (int i = 0; i < size; ++i) values += ",\"k" + std::to_string(i) + "\"";
    const std::string part = "," + parts;
    for (int i = 0; i < size; ++i) parts += part;
    const std::string request =
        post("/v1/chat/completions",
             R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "response_format": {"type": )"
             R"("json_schema", "json_schema": {"name": "a", "schema": {"$defs": {"e": {"enum": [)" +
                 values + R"(]}}, "prefixItems": [)" + parts + "]}}}}");
    constexpr int many = 24;
    const auto seconds = [](const std::function<void()>& run) {
        const auto began = std::chrono::steady_clock::now();
        run();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    const double one = seconds([&] { CHECK(status_of(RawClient(port).ask(request)) == 200); });
    const auto send_all = [&] {
        std::vector<RawClient> clients;
        for (int i = 0; i < many; ++i) clients.emplace_back(port).send(request);
        return clients;
    };
    send_all(); // and go away
    const auto chat = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})");
    CHECK(seconds([&] { CHECK(status_of(RawClient(port).ask(chat)) == 200); }) < many * one / 3);
    std::vector<RawClient> waiting = send_all();
    const double end = seconds([&] {
        serving.signal(SIGTERM);
        CHECK(serving.exit() == "exit 0");
    });
    CHECK(end < many * one / 3);
    CHECK(std::ranges::count_if(waiting, [](RawClient& client) { return status_of(client.read()) == 200; }) < many / 3);
}
#endif

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
    const std::pair<const char*, const char*> unreadable[] = {{"-m", "/nonexistent.gguf"},
                                                              {"-m", "/dev/null"},
                                                              {"-md", "/nonexistent.gguf"},
                                                              {"--kv", "/nonexistent.kv.json"},
                                                              {"--kv-condition", "/nonexistent"}};
    for (const auto& [flag, file] : unreadable) { // nobody is told that the server listens
        const std::string error = refused({flag, file, "--port", "0"});
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
