// The shared prefix cache of tq-run: machines that are directories here, a shared directory, and Redis.
#include "tests/support/redis_server.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tests/tools/server/raw_client.h"
#include "tests/tools/tq-run/new_machine.h"
#include "tests/tools/tq-run/serving.h"
#include <fstream>

using namespace tq::test;

namespace {

namespace fs = std::filesystem;
// Tokens found in the shared cache; -1: none is there.
int found(const Finished& finished) {
    const size_t at = finished.error.find(" in the shared one\n");
    if (at == std::string::npos) return -1;
    return std::stoi(finished.error.substr(finished.error.rfind(", ", at) + 2));
}

struct Place {
    TemporaryDirectory directory;

    Flags flags(Flags more = {}) const {
        more.insert(more.begin(), {"--cache-shared", directory.path().string()});
        return more;
    }
    std::string key(const std::string& name) const {
        const fs::path path = directory.path() / name;
        std::ofstream(path) << "a key of " << name << " with enough bytes\n";
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
        return path.string();
    }
    std::vector<fs::path> pages() const {
        std::vector<fs::path> all;
        for (const auto& file : fs::recursive_directory_iterator(directory.path()))
            if (file.path().extension() == ".page") all.push_back(file.path());
        return all;
    }
};

} // namespace

TEST_CASE("a prompt is found in a shared directory by another machine, and the answer is the same") {
    const Place place;
    const Finished alone = generate({}), first = generate(place.flags()), second = generate(place.flags());
    REQUIRE_MESSAGE(first.status == 0, first.error);
    CHECK(contains(first.error, "shared " + place.directory.path().string() + " (namespace '', key none; bits of any device)"));
    CHECK(found(alone) == -1);
    CHECK(found(first) == 0);
    CHECK(found(second) >= 512);
    CHECK(first.output == alone.output);
    CHECK(second.output == alone.output);
    CHECK(found(generate(place.flags({"-b", "64"}))) >= 512); // computed otherwise: shared all the same
    CHECK(found(generate(place.flags({"-ctk", "tq3"}))) == 0);
    CHECK(found(generate(place.flags({"--cache-shared-namespace", "other"}))) == 0);
    CHECK(found(generate(place.flags({"--cache-shared-namespace", "other"}))) >= 512);
    const Finished exact = generate(place.flags({"--deterministic"}));
    CHECK(contains(exact.error, "bits of devices like this one"));
    CHECK(found(exact) == 0);
    CHECK(found(generate(place.flags({"--deterministic", "-b", "64"}))) >= 512); // separate rows have the same bits
    CHECK(run({{TQ_RUN, "cache", "verify", "--cache-dir", place.directory.path().string()}, {}, {}}).status == 0);
}

TEST_CASE("what a device has run the CPU need not run, and the other way round") {
    const Place one, other;
    const Finished first = generate(one.flags(), {.device = "0"});
    if (first.status != 0) return skip("there is no device: " + first.error);
    CHECK(found(first) == 0);
    const Finished on_cpu = generate(one.flags());
    CHECK(found(on_cpu) >= 512);
    CHECK(on_cpu.output == generate({}).output); // of this model; others may differ in a token that is nearly as likely
    CHECK(found(generate(other.flags())) == 0);
    CHECK(found(generate(other.flags(), {.device = "0"})) >= 512);
}

TEST_CASE("with a key, machines that have it share, and what others write is not used") {
    const Place place;
    const std::string ours = place.key("ours"), theirs = place.key("theirs");
    CHECK(found(generate(place.flags({"--cache-shared-key", ours}))) == 0);
    const Finished again = generate(place.flags({"--cache-shared-key", ours}));
    CHECK(found(again) >= 512);
    CHECK(found(generate(place.flags({"--cache-shared-key", theirs}))) == 0);
    CHECK(found(generate(place.flags())) == 0);
    const Finished verified = run({{TQ_RUN, "cache", "verify", "--cache-dir", place.directory.path().string()}, {}, {}});
    CHECK_MESSAGE(verified.status == 0, verified.output);
    for (const fs::path& page : place.pages()) { // a byte of the signature
        std::fstream file(page, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(-1, std::ios::end);
        file.put('\x5a');
    }
    const Finished forged = generate(place.flags({"--cache-shared-key", ours}));
    CHECK(forged.status == 0);
    CHECK(found(forged) == 0);
    CHECK(contains(forged.error, "is not used: it is signed with another key"));
    CHECK(forged.output == again.output);
    // Each run writes again the page that it has found to be wrong; a beginning ends at a state, which the first pages alone
    // lack.
    for (size_t i = 1; i < place.pages().size(); i++) generate(place.flags({"--cache-shared-key", ours}));
    CHECK(found(generate(place.flags({"--cache-shared-key", ours}))) >= 512);
}

TEST_CASE("flags that cannot be are refused, and no password is shown") {
    const Place place;
    check_refused({"--cache-shared", "redis://:secret@host:port"}, "has a port that is none");
    check_refused({"--cache-shared", "rediss://:secret@host"}, "stunnel");
    check_refused({"--cache-shared", ""}, "--cache-shared");
    check_refused(place.flags({"--cache-shared-namespace", "a b"}), "a namespace has up to 64 letters");
    check_refused(place.flags({"--cache-shared-ttl", "-1"}), "--cache-shared-ttl");
    check_refused(place.flags({"--cache-shared-key", "/nonexistent"}), "the key file /nonexistent is not a file that can be read",
                  1);
    const Finished environment = generate({}, {.environment = {"TQ_CACHE_SHARED=redis://:secret@host:port"}});
    CHECK(environment.status == 1);
    CHECK_FALSE(contains(environment.error, "secret"));
}

TEST_CASE("a shared directory that is missing is a warning") {
    const Finished finished = generate({"--cache-shared", "/nonexistent/pages"});
    CHECK_FALSE(fs::exists("/nonexistent/pages"));
    CHECK(finished.status == 0);
    CHECK(finished.output == generate({}).output);
    CHECK(contains(finished.error, "the shared prefix cache /nonexistent/pages does not answer: /nonexistent/pages is not a "
                                   "directory that can be read: create it, or mount it"));
}

TEST_CASE("a prompt is found in Redis, and a Redis that is gone is a warning") {
    RedisServer server({"--requirepass", "secret"});
    const std::string address = "redis://:secret@127.0.0.1:" + std::to_string(server.port()) + "/1";
    if (!server.is_there()) return skip("this machine has no redis-server (Debian: apt-get install redis-server)");
    const Finished first = generate({"--cache-shared", address});
    if (contains(first.error, "this build has no Redis")) return skip("this build has no hiredis");
    REQUIRE_MESSAGE(first.status == 0, first.error);
    CHECK_FALSE(contains(first.error, "secret"));
    CHECK(found(first) == 0);
    const Finished second = generate({}, {.environment = {"TQ_CACHE_SHARED=" + address}});
    CHECK(found(second) >= 512);
    CHECK(second.output == first.output);
    server.kill();
    const Finished third = generate({"--cache-shared", address});
    CHECK(third.status == 0);
    CHECK(found(third) == 0);
    CHECK(third.output == first.output);
    CHECK(contains(third.error, "does not answer: cannot connect: Connection refused"));
}

TEST_CASE("servers share prompts through Redis, which is killed while they answer; /metrics counts") {
    RedisServer server;
    if (!server.is_there()) return skip("this machine has no redis-server (Debian: apt-get install redis-server)");
    const TemporaryDirectory machines;
    const auto flags = [&](const char* machine) {
        return "--device cpu -np 2 -c 2048 --cache-disk 0 --cache-dir " + (machines.path() / machine).string() +
               " --cache-shared redis://127.0.0.1:" + std::to_string(server.port());
    };
    const std::string body = R"({"prompt":")" + story(40) + R"(","max_tokens":6,"temperature":0})";
    const auto text = [&](uint16_t port) {
        const std::string reply = tq::RawClient(port).ask(tq::post("/v1/completions", body));
        REQUIRE(tq::status_of(reply) == 200);
        return reply.substr(reply.find("\"text\""), 40);
    };
    const auto metric = [&](uint16_t port, const std::string& name) {
        const std::string all = "\n" + tq::RawClient(port).ask(tq::get("/metrics"));
        const size_t at = all.find("\n" + name + " ");
        return at == std::string::npos ? -1 : std::stod(all.substr(at + name.size() + 2));
    };
    const auto reaches = [&](uint16_t port, const std::string& name, double value) { // the numbers lag by a moment
        for (int i = 0; i < 400 && metric(port, name) < value; i++) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return metric(port, name) >= value;
    };
    Serving a(flags("a"));
    const uint16_t port_a = a.port();
    const std::string answer = text(port_a);
    CHECK(reaches(port_a, "tqrun_shared_writes_total{result=\"written\"}", 2));
    Serving b(flags("b"));
    const uint16_t port_b = b.port();
    CHECK(text(port_b) == answer);
    CHECK(reaches(port_b, "tqrun_found_tokens_total{place=\"shared\"}", 512));
    CHECK(reaches(port_b, "tqrun_shared_reads_total{result=\"found\"}", 2));
    server.kill();
    Serving c(flags("c"));
    const uint16_t port_c = c.port();
    CHECK(text(port_c) == answer);
    CHECK(reaches(port_c, "tqrun_shared_paused{direction=\"read\"}", 1));
    CHECK(metric(port_c, "tqrun_found_tokens_total{place=\"shared\"}") == 0);
    for (Serving* one : {&a, &b, &c}) {
        one->signal(SIGTERM);
        CHECK(one->exit() == "exit 0");
    }
}
