// Servers that share a store of pages: each answers as a server alone does, and a slow store holds up no other request.
#include "model/engine/serving/scheduler.h"
#include "tests/support/cpu_scheduler.h"
#include "tests/support/fake_store.h"

namespace tq {
namespace {

using namespace serving;
using namespace std::chrono_literals;
using test::make, test::small, test::some_ids;
using test::Shelf;

SchedulerSetup sharing(const std::shared_ptr<Shelf>& shelf, std::chrono::milliseconds page_time = 20s) {
    SchedulerSetup setup;
    setup.shared = test::on(shelf);
    setup.shared.first_page_time = page_time;
    return setup;
}

template <class Condition> bool becomes(const Condition& condition) {
    for (const auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(2ms))
        if (condition()) return true;
    return false;
}

// Puts the pages of a prompt on the shelf.
void share(const std::shared_ptr<Shelf>& shelf, const Ids& prompt) {
    SchedulerUnderTest other(small(), make, sharing(shelf));
    collect(*other->submit(request_of(prompt, 1)));
    REQUIRE(becomes([&] {
        const std::lock_guard lock(shelf->mutex);
        return shelf->pages.size() >= prompt.size() / page_tokens;
    }));
}

TEST_CASE("what another server has run is found, and the answers are those of one alone") {
    const auto shelf = std::make_shared<Shelf>();
    const auto requests = mixed_requests(12, false);
    const auto expected = test::alone().answers({}, requests, false);
    for (int server = 0; server < 3; server++) {
        CAPTURE(server);
        if (server == 2) shelf->dead = true;
        SchedulerUnderTest scheduler(small(), make, sharing(shelf));
        std::vector<std::shared_ptr<Stream>> streams;
        for (const auto& request : requests) streams.push_back(scheduler->submit(copy_of(request)));
        for (size_t i = 0; i < requests.size(); i++) CHECK(collect(*streams[i]).ids == expected[i]);
        const Status status = scheduler.rest();
        CHECK(status.failed == 0);
        CHECK((status.found.shared_tokens > 0) == (server == 1));
        CHECK(becomes([&] { return shelf->pages.size() >= 2; }));
    }
}

TEST_CASE("while pages come slowly, other requests are answered") {
    const auto shelf = std::make_shared<Shelf>();
    const Ids prompt = some_ids(600);
    share(shelf, prompt);
    SchedulerUnderTest scheduler(small(), make, sharing(shelf));
    REQUIRE(becomes([&] { return shelf->probes >= 2; })); // of both servers
    shelf->hangs = true;
    const auto quick = scheduler->submit(request_of(some_ids(20, 2), 100)); // too short to tell how fast prompts are
    const auto slow = scheduler->submit(request_of(prompt, 3));
    const auto later = scheduler->submit(request_of(some_ids(20, 3), 10));
    CHECK(collect(*quick).ids.size() > 0);
    CHECK(collect(*later).ids.size() > 0);
    CHECK(scheduler->status().found.shared_tokens == 0);
    CHECK_FALSE(slow->done());
    shelf->release();
    const StreamAnswer answer = collect(*slow);
    CHECK(answer.last.finish != Finish::failed);
    CHECK(answer.last.timings.cached_tokens == 512);
    CHECK(scheduler.rest().found.shared_tokens == 512);
}

TEST_CASE("requests with the same beginning fetch it once") {
    const auto shelf = std::make_shared<Shelf>();
    const Ids prompt = some_ids(600);
    share(shelf, prompt);
    SchedulerUnderTest scheduler(small(), make, sharing(shelf));
    REQUIRE(becomes([&] { return shelf->probes >= 2; }));
    shelf->gets = 0;
    shelf->read_delay_ms = 50;
    std::vector<std::shared_ptr<Stream>> streams;
    for (int i = 0; i < 4; i++) streams.push_back(scheduler->submit(request_of(prompt, 3)));
    for (const auto& stream : streams) CHECK(collect(*stream).last.timings.cached_tokens >= 512);
    CHECK(shelf->gets == 2);
}

TEST_CASE("a request that waits for pages can be cancelled, and one whose pages do not come is run") {
    const auto shelf = std::make_shared<Shelf>();
    const Ids prompt = some_ids(600);
    share(shelf, prompt);
    {
        SchedulerUnderTest scheduler(small(), make, sharing(shelf));
        REQUIRE(becomes([&] { return shelf->probes >= 2; }));
        shelf->hangs = true;
        const auto stream = scheduler->submit(request_of(prompt, 3));
        std::this_thread::sleep_for(50ms);
        stream->cancel();
        CHECK(collect(*stream).last.finish == Finish::cancelled);
        shelf->release();
    }
    SchedulerUnderTest scheduler(small(), make, sharing(shelf, 300ms));
    REQUIRE(becomes([&] { return shelf->probes >= 3; }));
    shelf->read_delay_ms = 60000;
    const StreamAnswer answer = collect(*scheduler->submit(request_of(prompt, 3)));
    CHECK(answer.ids.size() == 3);
    CHECK(answer.last.timings.cached_tokens == 0);
    CHECK(scheduler.rest().found.shared->late == 1);
}

} // namespace
} // namespace tq
