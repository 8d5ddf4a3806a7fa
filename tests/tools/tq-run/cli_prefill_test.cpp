// --prefill-from: a server runs the prompts of others, which decode; and what happens if it does not, or lies.
#include "tests/support/lying_server.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tests/tools/server/raw_client.h"
#include "tests/tools/tq-run/new_machine.h"
#include "tests/tools/tq-run/serving.h"
#include <algorithm>
#include <fmt/format.h>
#include <fstream>

using namespace tq::test;

namespace {

std::string at(uint16_t port) { return "http://127.0.0.1:" + std::to_string(port); }

// The same as generate(), without a window, which pages of others lack.
Finished generated(Flags flags, const OnMachine& on = {}) {
    if (std::ranges::find(flags, "-ctk") == flags.end()) flags.insert(flags.end(), {"-ctk", "tq4"});
    return generate(std::move(flags), on);
}

// Tokens that another machine has computed; -1: there is none.
int found(const Finished& finished) {
    const size_t end = finished.error.find(" by another machine\n");
    if (end == std::string::npos) return -1;
    return std::stoi(finished.error.substr(finished.error.rfind(", ", end) + 2));
}

std::string reply_of(const std::string& body, const std::string& status = "200 OK", size_t length = SIZE_MAX) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(length == SIZE_MAX ? body.size() : length) +
           "\r\n\r\n" + body;
}
std::string length_bytes(uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; i++) bytes += char(length >> (8 * i));
    return bytes;
}
// A page of the demo model with tq4: a head of 1112 bytes, and 1056 for each token.
constexpr uint64_t page_bytes = 1112 + 256 * 1056 + 4 * 2 * 2 * 2 * 256;

// Whether this build has the client at all.
bool can_ask() {
    if (!contains(generated({"--prefill-from", "http://127.0.0.1:1"}, {.sentences = 1}).error, "this build cannot download"))
        return true;
    return skip("this build has no libcurl"), false;
}

double metric(uint16_t port, const std::string& name) {
    const std::string all = "\n" + tq::RawClient(port).ask(tq::get("/metrics"));
    const size_t at = all.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(all.substr(at + name.size() + 2));
}

// Whether their sum becomes so large within a minute: the numbers are those of a moment ago.
bool reach(uint16_t port, const std::vector<std::string>& names, double least) {
    const auto sum = [&] {
        double all = 0;
        for (const std::string& name : names) all += metric(port, name);
        return all;
    };
    for (int i = 0; i < 1200 && sum() < least; i++) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return sum() >= least;
}

std::string answer_of(uint16_t port, int sentences, const std::string& before = "") {
    const std::string body = R"({"prompt":")" + before + story(sentences) + R"(","max_tokens":6,"temperature":0})";
    const std::string reply = tq::RawClient(port).ask(tq::post("/v1/completions", body));
    REQUIRE(tq::status_of(reply) == 200);
    return reply.substr(reply.find("\"text\""), 40);
}

std::string server_flags(const TemporaryDirectory& machines, const std::string& name, const std::string& more = "") {
    return "--device cpu -np 2 -c 2048 -ctk tq4 --cache-disk 0 --cache-dir " + (machines.path() / name).string() + " " + more;
}

} // namespace

TEST_CASE("a prompt that a server runs for others brings them the same answer") {
    if (!can_ask()) return;
    const TemporaryDirectory machines;
    Serving strong(server_flags(machines, "strong", "--api-key a-long-secret"));
    const std::string url = at(strong.port());
    const Flags from{"--prefill-from", url};
    const std::vector<std::string> key{"TQ_PREFILL_KEY=a-long-secret"};
    const Finished alone = generated({});
    CHECK(found(alone) == -1);
    const Finished weak = generated(from, {.environment = key});
    REQUIRE_MESSAGE(weak.status == 0, weak.error);
    CHECK(found(weak) >= 512);
    CHECK(found(weak) % 256 == 0);
    CHECK(weak.output == alone.output);
    CHECK_FALSE(contains(weak.error, "secret"));
    CHECK(found(generated({}, {.environment = {key[0], "TQ_PREFILL_FROM=" + url + "/"}})) ==
          found(weak));                                                       // from the strong one's cache
    CHECK(found(generated(from, {.sentences = 5, .environment = key})) == 0); // less than a page
    std::ofstream(machines.path() / "key") << "a-long-secret\n";
    CHECK(found(generated({"--prefill-from", url, "--prefill-key-file", (machines.path() / "key").string()})) == found(weak));

    const auto is_computed_here = [&](const Flags& more, const std::vector<std::string>& environment, const std::string& why) {
        Flags flags = from;
        flags.insert(flags.end(), more.begin(), more.end());
        const Finished finished = generated(flags, {.environment = environment});
        CHECK(finished.status == 0);
        CHECK(found(finished) == 0);
        CHECK(finished.output == generated(more).output);
        CHECK_MESSAGE(contains(finished.error, why), finished.error);
    };
    is_computed_here({}, {}, "it says 401: an API key of this server is needed");
    is_computed_here({"-ctk", "q8_0"}, key, "it says 409: this server has other pages: types is 'tq4/tq4");
    is_computed_here({"--kv-rotation", "haar"}, key, "rotation is 'wht' here and 'haar' there");
    is_computed_here({"-c", "4096", "--rope-scaling", "yarn", "--rope-scale", "2"}, key, "rope is ");
    strong.signal(SIGTERM);
    CHECK(strong.exit() == "exit 0");
    is_computed_here({}, key, "is left alone for a while, and prompts are computed here: Failed to connect");
}

TEST_CASE("a server lets another one run its prompts, which is killed; /metrics counts") {
    if (!can_ask()) return;
    const TemporaryDirectory machines;
    Serving strong(server_flags(machines, "strong")), alone(server_flags(machines, "alone"));
    const uint16_t strong_port = strong.port(), alone_port = alone.port();
    Serving weak(server_flags(machines, "weak", "--prefill-from " + at(strong_port)));
    const uint16_t port = weak.port();
    const std::string answer = answer_of(port, 40);
    CHECK(answer_of(alone_port, 40) == answer);
    const auto prompts = [](const char* what) { return fmt::format("tqrun_remote_prompts_total{{what=\"{}\"}}", what); };
    if (metric(port, prompts("late")) != 0) { // both are on this machine, which has others' work to do
        MESSAGE("the other server was so slow that the prompt was computed here");
        return;
    }
    CHECK(reach(port, {"tqrun_found_tokens_total{place=\"machine\"}"}, 512));
    CHECK(metric(port, prompts("asked")) == 1);
    CHECK(metric(port, "llamacpp:prompt_tokens_total") < 256 + 32);
    CHECK(metric(strong_port, "llamacpp:tokens_predicted_total") == 0);
    strong.signal(SIGKILL);
    CHECK(answer_of(port, 45) == answer_of(alone_port, 45)); // begins the same, with tokens that the weak one has
    CHECK(metric(port, prompts("asked")) == 1);
    CHECK(answer_of(port, 40, "A day. ") == answer_of(alone_port, 40, "A day. "));
    // If the machine is busy, the first prompt may have taken longer there than here, so that it is not asked again, or its
    // failure may come late.
    CHECK(reach(port, {prompts("skipped"), prompts("failed"), prompts("late")}, 1));
    const bool pays = metric(port, prompts("skipped")) == 0;
    CHECK(metric(port, prompts("failed")) + metric(port, prompts("late")) == (pays ? 1 : 0));
    CHECK(metric(port, "tqrun_remote_paused") == (pays ? 1 : 0));
    for (Serving* one : {&weak, &alone}) {
        one->signal(SIGTERM);
        CHECK(one->exit() == "exit 0");
    }
}

TEST_CASE("two servers that name each other answer all the same") {
    if (!can_ask()) return;
    const TemporaryDirectory machines;
    const uint16_t second_port = LocalSocket().port;
    Serving first(server_flags(machines, "first", "--prefill-from " + at(second_port)));
    const uint16_t port = first.port();
    Serving second(server_flags(machines, "second", "--port " + std::to_string(second_port) + " --prefill-from " + at(port)));
    second.port();
    const std::string answer = answer_of(port, 40);
    CHECK(answer_of(second_port, 40) == answer);
    CHECK(reach(port, {"tqrun_found_tokens_total{place=\"machine\"}"}, 512));
    CHECK(metric(second_port, "tqrun_remote_prompts_total{what=\"asked\"}") == 0);
}

TEST_CASE("a server that lies, hangs or sends too much changes no answer") {
    if (!can_ask()) return;
    const std::string right = generated({}).output, right_of_80 = generated({}, {.sentences = 80}).output;
    const auto refused = [&](const std::string& reply, const std::string& why, bool closes = true) {
        const LyingServer liar(reply, {}, closes);
        const int sentences = closes ? 40 : 80; // 7 pages, for which it has 14 s
        const Finished finished = generated({"--prefill-from", at(liar.port())}, {.sentences = sentences});
        CHECK(finished.status == 0);
        CHECK(finished.output == (closes ? right : right_of_80));
        CHECK(found(finished) == 0);
        CHECK_MESSAGE(contains(finished.error, why), finished.error);
        CHECK_FALSE(contains(finished.error, "\x1b"));
    };
    refused("", "is left alone for a while");
    refused("SSH-2.0-OpenSSH\r\n", "is left alone for a while");
    refused(reply_of(""), "sent 0 of 3 pages of a prompt");
    refused(reply_of("x"), "it broke off within a page");
    refused(reply_of(length_bytes(page_bytes - 1)), "it sent a page of " + std::to_string(page_bytes - 1));
    refused(reply_of(length_bytes(uint64_t(1) << 60)), "it sent a page of 1152921504606846976 bytes instead of");
    refused(reply_of(length_bytes(page_bytes) + std::string(1000, 'x')), "it broke off within a page");
    refused(reply_of(length_bytes(page_bytes) + std::string(page_bytes, 'x')), "it is not a page of tq-run");
    refused(reply_of(length_bytes(page_bytes) + std::string(500, 'x'), "200 OK", 1 << 20), "is left alone for a while");
    refused(reply_of("\x1b[31m", "500 No"), "it says 500: ");
    refused(reply_of("", "404 Not Found"), "it has no /v1/prefill");
    refused("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "it says 302");
    refused(reply_of(length_bytes(0), "200 OK", 1 << 20), "it has said nothing for 5 s", false);
}

TEST_CASE("flags that cannot be are refused") {
    if (!can_ask()) return;
    check_refused({"--prefill-from", "ftp://host"}, "it is neither https nor http");
    check_refused({"--prefill-from", "http://me:secret@host"}, "--prefill-from");
    check_refused({"--prefill-from", "http://host/?key=secret"}, "so it is not the address of a server");
    check_refused({"--prefill-from", ""}, "--prefill-from");
    check_refused({"-ctk", "tq4", "--prefill-from", "http://host", "--prefill-key-file", "/nonexistent"}, "/nonexistent", 1);
    const TemporaryDirectory directory;
    std::ofstream(directory.path() / "key") << "\nx\n";
    check_refused({"-ctk", "tq4", "--prefill-from", "http://host", "--prefill-key-file", (directory.path() / "key").string()},
                  "has no key in its first line", 1);
}
