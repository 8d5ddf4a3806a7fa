// Pages in Redis: a real server, and one of the test's own that lies.
#include "model/prefix/shared_pages.h"
#include "model/prefix/store/redis_store.h"
#include "tests/model/prefix/store/shared_store_test.h"
#include "tests/support/lying_server.h"
#include "tests/support/redis_server.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"

using namespace tq;
using namespace tq::test;

namespace {

// False, and the case is skipped, if this build or this machine has no Redis.
bool can_run(const RedisServer& server) {
    const std::string problem = problem_of([] { require_redis(); });
    if (!problem.empty()) return skip("this build has no hiredis"), false;
    if (!server.is_there()) return skip("this machine has no redis-server (Debian: apt-get install redis-server)"), false;
    return true;
}

std::unique_ptr<SharedStore> open(uint16_t port, std::chrono::seconds ttl = 100s, const std::string& password = "",
                                  uint32_t database = 0) {
    return open_redis_store({"127.0.0.1", port, "", password, database}, owner_name(store_owner), ttl);
}
std::string key_of(uint32_t number) {
    return "tqrun:page:" + owner_name(store_owner).hex() + ":" + page_entry(number).name.hex();
}

std::string get_problem(uint16_t port, std::chrono::milliseconds within = 10s) {
    return problem_of([&] { open(port)->get(page_entry(1), 1000, SharedStore::Clock::now() + within); });
}

} // namespace

TEST_CASE("Redis keeps pages, with a password and in a database") {
    const RedisServer server({"--requirepass", "a secret"});
    if (!can_run(server)) return;
    check_store(*open(server.port(), 100s, "a secret", 2), *open(server.port(), 0s, "a secret", 2));
    CHECK_FALSE(open(server.port(), 0s, "a secret", 1)->get(page_entry(1), 1000, soon()));
    CHECK(contains(problem_of([&] { open(server.port())->probe(soon()); }), "Redis says: NOAUTH"));
    CHECK(contains(problem_of([&] { open(server.port(), 0s, "wrong")->probe(soon()); }), "Redis says: WRONGPASS"));
    CHECK(contains(problem_of([&] { open(server.port(), 0s, "a secret", 99)->probe(soon()); }), "Redis says: ERR"));
}

TEST_CASE("pages expire in Redis when nobody has used them") {
    const RedisServer server;
    if (!can_run(server)) return;
    const auto bytes = random_bytes(1, 1000);
    const auto ttl = [&](uint32_t number) { return std::stol(server.cli({"TTL", key_of(number)})); };
    open(server.port(), 0s)->put(page_entry(1), bytes, false, soon());
    CHECK(ttl(1) == -1);
    const auto store = open(server.port(), 1000s);
    store->put(page_entry(2), bytes, false, soon());
    CHECK(ttl(2) > 900);
    server.cli({"EXPIRE", key_of(2), "50"});
    CHECK(store->get(page_entry(2), 1000, soon()) == bytes);
    CHECK(ttl(2) > 900);
    server.cli({"EXPIRE", key_of(2), "50"});
    CHECK_FALSE(store->put(page_entry(2), bytes, false, soon()));
    CHECK(ttl(2) > 900);
    server.cli({"PEXPIRE", key_of(2), "1"});
    std::this_thread::sleep_for(20ms);
    CHECK_FALSE(store->get(page_entry(2), 1000, soon()));
}

TEST_CASE("a Redis that is full says so, and keeps what it has") {
    const RedisServer server({"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"});
    if (!can_run(server)) return;
    const auto store = open(server.port());
    const auto bytes = random_bytes(1, 1 << 20);
    std::string problem;
    uint32_t kept = 0;
    while (kept < 100 && problem.empty()) problem = problem_of([&] { store->put(page_entry(kept++), bytes, false, soon()); });
    CHECK(contains(problem, "Redis says: OOM"));
    CHECK(kept > 2);
    CHECK(store->get(page_entry(0), bytes.size(), soon()) == bytes);
}

TEST_CASE("a Redis that is killed is an error at once, one that hangs after the deadline, and both are found again") {
    RedisServer server;
    if (!can_run(server)) return;
    const auto store = open(server.port());
    const auto bytes = random_bytes(1, 1000);
    store->put(page_entry(1), bytes, false, soon());
    CHECK(store->connections() == 1);
    server.cli({"CLIENT", "KILL", "TYPE", "normal"}); // an idle connection that is closed is replaced
    CHECK(store->get(page_entry(1), 1000, soon()) == bytes);
    CHECK(store->connections() == 2);
    server.signal(SIGSTOP);
    const auto start = SharedStore::Clock::now();
    CHECK(contains(problem_of([&] { store->get(page_entry(1), 1000, start + 300ms); }), "Redis did not reply in time"));
    CHECK(SharedStore::Clock::now() - start < 5s);
    server.signal(SIGCONT);
    CHECK(store->get(page_entry(1), 1000, soon()) == bytes);
    server.kill();
    CHECK(contains(problem_of([&] { store->get(page_entry(1), 1000, soon()); }), "cannot connect"));
    CHECK(contains(problem_of([&] { store->put(page_entry(1), bytes, false, soon()); }), "cannot connect"));
    server.start();
    CHECK_FALSE(store->get(page_entry(1), 1000, soon())); // nothing was saved
    CHECK(store->put(page_entry(1), bytes, false, soon()));
    CHECK(store->get(page_entry(1), 1000, soon()) == bytes);
    CHECK(contains(problem_of([&] { open_redis_store({"no.such.host.invalid"}, {}, 0s)->probe(soon()); }), "cannot connect"));
}

TEST_CASE("what Redis had before it was killed, and started again empty, is written again, though nobody reads there") {
    RedisServer server;
    if (!can_run(server)) return;
    const PageLayout layout(2, {{3, 1}, {2, 0}});
    SharedPages::Options options;
    options.open = [&] { return open(server.port()); };
    options.place = "Redis";
    options.confirm_pause = 0ms;
    SharedPages pages(options, layout);
    const PageHead head = page_head(1);
    const auto content = random_bytes(1, layout.bytes(head.tokens()));
    for (const bool again : {false, true}) {
        for (const auto end = soon(); !pages.wants(head, true) && SharedStore::Clock::now() < end;)
            std::this_thread::sleep_for(5ms);
        REQUIRE(pages.wants(head, true));
        pages.write(head, content);
        pages.flush();
        CHECK_FALSE(pages.wants(head, true));
        CHECK(server.cli({"EXISTS", key_of(1)}) == "1\n");
        if (again) break;
        server.kill();
        server.start();
        CHECK(server.cli({"EXISTS", key_of(1)}) == "0\n");
    }
    CHECK(pages.statistics().written == 2);
}

TEST_CASE("what a server of another kind replies is an error, takes no memory and no longer than the deadline") {
    if (!problem_of([] { require_redis(); }).empty()) return skip("this build has no hiredis");
    const auto rejects = [](const std::string& reply, const char* reason) {
        CAPTURE(reply.substr(0, 40));
        const LyingServer server(reply);
        CHECK(contains(get_problem(server.port()), reason));
    };
    rejects("*2000000000\r\n", "replies what was not asked for"); // hiredis takes memory for the elements of an array
    rejects("%2000000000\r\n", "replies what was not asked for");
    rejects("HTTP/1.1 400 Bad Request\r\n\r\n", "replies what was not asked for");
    rejects(":5\r\n:1\r\n", "replies what was not asked for");
    rejects("$-7\r\n", "replies wrongly");
    rejects("$x\r\n", "replies wrongly");
    rejects("$1001\r\n" + std::string(1001, 'x') + "\r\n:1\r\n", "has more than the 1000 bytes of a page");
    rejects("-LOADING Redis is loading\r\n", "Redis says: LOADING Redis is loading");
    rejects("-" + std::string(10000, 'x'), "has more than the 1000 bytes of a page");
    const LyingServer endless("$100000000\r\n" + std::string(100'000'000, 'x'));
    CHECK(contains(get_problem(endless.port()), "has more than the 1000 bytes of a page"));
    CHECK(endless.sent() < 50'000'000);
    const auto start = SharedStore::Clock::now();
    const LyingServer slow("$1000\r\n" + std::string(1000, 'x') + "\r\n", 20ms); // each byte comes in time
    CHECK(contains(get_problem(slow.port(), 300ms), "did not reply in time"));
    CHECK(contains(get_problem(LyingServer("", 0ms, false).port(), 300ms), "did not reply in time"));
    CHECK(SharedStore::Clock::now() - start < 10s);
    CHECK(contains(get_problem(LyingServer("$1000\r\nxx", 0ms, true).port()), "closed the connection"));
}
