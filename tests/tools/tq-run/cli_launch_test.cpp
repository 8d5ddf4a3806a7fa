// tq-run launch with clients that only tell how they were started.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tools/server/http/sockets.h"
#include "tools/server/http_client.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;

namespace {

uint16_t free_port() { return server::listen_on("127.0.0.1", 0).port; }

// A directory with a client of that name, which prints its arguments, environment and input, and ends with 7.
struct FakeClient {
    TemporaryDirectory directory;

    explicit FakeClient(const std::string& name) {
        const auto path = directory.path() / name;
        std::ofstream(path)
            << "#!/bin/sh\nfor word; do echo \"word $word\"; done\nenv\nread line && echo \"input $line\"\n"
               "for word; do case $word in *.ts) ls -ld \"${word%/*}\" \"$word\"; cat \"$word\";; esac; done\nexit 7\n";
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }

    Finished launch(std::vector<std::string> words) const {
        words.insert(words.begin(), "launch");
        const char* path = std::getenv("PATH");
        return tq_run(words, "typed\n",
                      {"PATH=" + directory.path().string() + ":" + (path ? path : ""), "ANTHROPIC_API_KEY=the user's own"});
    }
};

bool has(const std::string& text, const std::string& line) { return ("\n" + text).find("\n" + line + "\n") != std::string::npos; }

} // namespace

TEST_CASE("launch: starts a server, then the client with its terminal and status, and stops the server") {
    const std::string port = std::to_string(free_port()), url = "http://127.0.0.1:" + port;
    const FakeClient client("claude");
    const Finished finished = client.launch(
        {"claude", "--url", url, "--device", "cpu", "-a", "demo", "--api-key", "secret", "--", "-p", "--url", "x y"});
    CAPTURE(finished.error);
    CHECK(finished.status == 7);
    CHECK(finished.output.starts_with("word -p\nword --url\nword x y\n"));
    CHECK(has(finished.output, "ANTHROPIC_BASE_URL=" + url));
    CHECK(has(finished.output, "ANTHROPIC_AUTH_TOKEN=secret"));
    CHECK(has(finished.output, "ANTHROPIC_API_KEY="));
    CHECK(has(finished.output, "ANTHROPIC_MODEL=demo"));
    CHECK(has(finished.output, "CLAUDE_CODE_MAX_CONTEXT_TOKENS=2048"));
    CHECK(has(finished.output, "input typed"));
    CHECK(finished.error.find("a server is started for Claude Code") != std::string::npos);
    CHECK(finished.error.find("the server's context is 2048: start the server with -c 32768") != std::string::npos);
    CHECK(!server::http_get(url, "/health", "", std::chrono::seconds(1)));
}

TEST_CASE("launch: each client is told the server's address, model and context in its own way") {
    const std::string url = "http://127.0.0.1:" + std::to_string(free_port());
    const auto launch = [&](const std::string& name) {
        const Finished finished = FakeClient(name).launch({name, "--url", url, "--device", "cpu", "-a", "a \"model\""});
        CAPTURE(finished.error);
        REQUIRE(finished.status == 7);
        return finished.output;
    };
    const std::string codex = launch("codex");
    CHECK(has(codex, R"(word model="a \"model\"")"));
    CHECK(has(codex, "word model_context_window=2048"));
    CHECK(codex.find("stream_idle_timeout_ms=3600000") != std::string::npos);
    CHECK(codex.find("base_url=\"" + url + "/v1\",wire_api=\"responses\"") != std::string::npos);

    const std::string opencode = launch("opencode"), variable = "\nOPENCODE_CONFIG_CONTENT=";
    const size_t at = opencode.find(variable) + variable.size();
    const auto config = nlohmann::json::parse(opencode.substr(at, opencode.find('\n', at) - at));
    CHECK(config["model"] == "tq-run/a \"model\"");
    CHECK(config["provider"]["tq-run"]["options"]["baseURL"] == url + "/v1");
    CHECK(config["provider"]["tq-run"]["models"]["a \"model\""]["limit"]["context"] == 2048);

    const std::string qwen = launch("qwen");
    CHECK(qwen.starts_with("word --auth-type\nword openai\n"));
    CHECK(has(qwen, "OPENAI_BASE_URL=" + url + "/v1"));
    CHECK(has(qwen, "OPENAI_MODEL=a \"model\""));
    CHECK(has(qwen, "QWEN_STREAM_IDLE_TIMEOUT_MS=3600000"));

    const std::string pi = launch("pi");
    CHECK(pi.find("pi.registerProvider(\"tq-run\", {") != std::string::npos);
    CHECK(pi.find("\"baseUrl\": \"" + url + "/v1\"") != std::string::npos);
    CHECK(pi.find("drwx------") != std::string::npos); // of the directory, and of the file that may hold a key
    CHECK(pi.find("\n-rw-------") != std::string::npos);
}

TEST_CASE("launch: what cannot be is said, and what to do") {
    const FakeClient client("codex");
    const auto error = [&](std::vector<std::string> words, int status) {
        const Finished finished = client.launch(std::move(words));
        CHECK(finished.status == status);
        CHECK(finished.output.empty());
        return finished.error;
    };
    CHECK(error({}, 2).find("claude, codex, opencode, qwen, pi") != std::string::npos);
    CHECK(error({"vim"}, 2).find("vim is no client that launch knows") != std::string::npos);
    CHECK(error({"codex", "--url"}, 2).find("--url needs a value") != std::string::npos);
    CHECK(error({"codex", "--url", "http://192.0.2.1:1"}, 1).find("nobody answers at http://192.0.2.1:1") != std::string::npos);
    const std::string port = std::to_string(free_port());
    CHECK(error({"codex", "--port", port, "-m", "/nowhere.gguf"}, 1).find("/nowhere.gguf") != std::string::npos);
    CHECK(error({"codex", "--port", port, "--nonsense"}, 1).find("unknown flag --nonsense") != std::string::npos);
    const Finished missing = tq_run({"launch", "pi"}, "", {"PATH=/nowhere"});
    CHECK(missing.status == 127);
    CHECK(missing.error.find("npm install -g @mariozechner/pi-coding-agent") != std::string::npos);
    CHECK(tq_run({"launch", "--help"}).output.find("[-- ARGUMENTS...]") != std::string::npos);
}
