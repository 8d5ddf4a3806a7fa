// Prefix caches of several machines on one store, with a toy cache whose pages' bytes are the ids themselves.
#include "model/prefix/cache.h"
#include "model/prefix/sent_page.h"
#include "tests/support/fake_store.h"
#include "tests/support/id_forward.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"

using namespace tq;
using namespace std::chrono_literals;
using test::contains;
using test::Shelf;

namespace {

using Ids = std::vector<uint32_t>;

constexpr uint64_t page_bytes = page_tokens * 8;
const OwnerTexts owner{{"fingerprint", "1"}, {"computation", "any device"}};

Ids sequence(uint32_t number, uint32_t count) {
    Ids ids(count);
    for (uint32_t i = 0; i < count; i++) ids[i] = number * 10000 + i;
    return ids;
}

// A machine with a prefix cache.
struct Machine {
    IdForward forward;
    PrefixCache cache;

    explicit Machine(const std::shared_ptr<Shelf>& shelf, uint64_t memory = 1 << 24, const std::filesystem::path& disk = {},
                     uint32_t pages = 32)
        : forward(3, pages),
          cache(forward, owner,
                {.memory_bytes = memory, .disk = {disk, disk.empty() ? 0 : uint64_t(1) << 30}, .shared = test::on(shelf)}) {}

    // Runs a prompt as a session does; returns the tokens that were found.
    uint32_t run(const Ids& ids, std::string_view tenant = {}, uint32_t slot = 0, uint32_t cold = UINT32_MAX) {
        forward.ids.truncate(slot, 0);
        const auto fetch = cache.fetch(ids, 0, tenant);
        while (fetch && cache.is_coming(*fetch, 1s)) {
        }
        const uint32_t found = cache.take(slot, ids, 0, true, tenant);
        forward.ids.truncate(slot, found);
        REQUIRE(forward.ids.holds(slot, ids));
        forward.ids.append(slot, {ids.begin() + found, ids.end()});
        REQUIRE(forward.ids.holds(slot, ids));
        cache.store(slot, ids, std::min(cold, uint32_t(ids.size())), true, tenant);
        cache.flush();
        return found;
    }
    SharedPages::Statistics shared() const { return *cache.statistics().shared; }
};

} // namespace

TEST_CASE("what one machine has run another finds, page by page") {
    const auto shelf = std::make_shared<Shelf>();
    Machine a(shelf), b(shelf);
    const Ids ids = sequence(1, 1200);
    CHECK(a.run(ids) == 0);
    CHECK(shelf->pages.size() == 4); // whole ones
    CHECK(b.run(ids) == 1024);
    CHECK(b.cache.statistics().shared_tokens == 1024);
    CHECK(b.cache.statistics().memory_tokens == 0);
    CHECK(b.cache.statistics().memory_bytes == 0); // they were only on their way
    CHECK(b.shared().written == 0);
    CHECK(b.run(ids, {}, 1) == 1199); // from now on its own
    CHECK(b.shared().found == 4);
    Ids branch = ids;
    branch[600] = 7;
    branch.resize(2000, 8);
    CHECK(b.run(branch, {}, 2) == 600);
    CHECK(shelf->pages.size() == 4 + 5); // from the third on
    CHECK(a.run(branch) == 1792);
    CHECK(a.cache.statistics().shared_tokens == 5 * 256);
    CHECK(a.shared().found == 5);
    CHECK(a.cache.take_warnings().empty());
}

TEST_CASE("a tenant finds what it has stored itself, on every machine") {
    const auto shelf = std::make_shared<Shelf>();
    Machine a(shelf), b(shelf);
    const Ids ids = sequence(1, 600);
    a.run(ids, "one");
    CHECK(b.run(ids, "two", 0) == 0);
    CHECK(b.run(ids, {}, 1) == 0);
    CHECK(b.run(ids, "one", 2) == 512);
    CHECK(shelf->pages.size() == 6);
}

TEST_CASE("sampled tokens are not shared, nor what follows them") {
    const auto shelf = std::make_shared<Shelf>();
    Machine a(shelf), b(shelf);
    const Ids ids = sequence(1, 1200);
    a.run(ids, {}, 0, 600);
    CHECK(shelf->pages.size() == 2);
    CHECK(b.run(ids) == 512);
}

TEST_CASE("a short prompt, and one that is known, ask nothing") {
    const auto shelf = std::make_shared<Shelf>();
    Machine a(shelf);
    a.run(sequence(1, 200));
    a.run(sequence(2, 256)); // its last token is run again
    CHECK(shelf->gets == 1);
    a.run(sequence(2, 280));
    CHECK(shelf->gets == 1);
    CHECK(a.cache.fetch(sequence(3, 600), 590) == nullptr); // the caller has nearly all of it
    CHECK(a.cache.fetch({}, 0) == nullptr);
}

TEST_CASE("fetched pages go to the disk, and are found there later") {
    const auto shelf = std::make_shared<Shelf>();
    const test::TemporaryDirectory directory;
    const Ids ids = sequence(1, 1200);
    Machine(shelf).run(ids);
    CHECK(Machine(shelf, 1 << 24, directory.path()).run(ids) == 1024);
    shelf->pages.clear();
    Machine later(shelf, 1 << 24, directory.path());
    CHECK(later.run(ids) == 1199);
    CHECK(later.cache.statistics().shared_tokens == 0);
    CHECK(later.cache.statistics().disk_tokens == 1200);
    CHECK(shelf->pages.size() == 4); // again
}

TEST_CASE("with little memory as many pages are taken over as have room") {
    const auto shelf = std::make_shared<Shelf>();
    const Ids ids = sequence(1, 1200);
    Machine(shelf).run(ids);
    Machine little(shelf, 2 * page_bytes);
    CHECK(little.run(ids) == 512);
    CHECK(little.shared().rejected + little.shared().failed == 0);
    Machine none(shelf, 0); // straight to the device
    CHECK(none.run(ids) == 1024);
    CHECK(none.cache.statistics().shared_tokens == 1024);
    Machine small(shelf, 0, {}, 6);
    CHECK(small.run(ids) == 1024);
    CHECK(small.run(sequence(2, 1200), {}, 0) == 0); // the first sequence's pages make room
    CHECK(small.run(ids) == 1024);
}

TEST_CASE("whatever the store does, prompts are run") {
    const auto shelf = std::make_shared<Shelf>();
    const Ids ids = sequence(1, 1200);
    Machine(shelf).run(ids);
    {
        shelf->dead = true;
        Machine machine(shelf);
        CHECK(machine.run(ids) == 0);
        CHECK(machine.run(sequence(2, 1200)) == 0);
        CHECK(machine.cache.take_warnings().size() == 1);
        shelf->dead = false;
    }
    {
        shelf->read_delay_ms = 60000;
        Machine machine(shelf);
        machine.cache.note_speed(25600, 1s);
        CHECK(machine.run(ids) == 0);
        CHECK(machine.shared().late == 1);
        shelf->read_delay_ms = 0;
    }
    for (auto& [name, page] : shelf->pages) page[page.size() / 2] ^= std::byte{1};
    Machine machine(shelf);
    CHECK(machine.run(ids) == 0);
    CHECK(machine.shared().rejected == 1);
    CHECK(contains(machine.cache.take_warnings().at(0), "its content has a wrong checksum"));
}

TEST_CASE("a page that is run while it is fetched is kept once") {
    const auto shelf = std::make_shared<Shelf>();
    const Ids ids = sequence(1, 1200);
    Machine(shelf).run(ids);
    Machine machine(shelf);
    const auto fetch = machine.cache.fetch(ids);
    REQUIRE(fetch);
    machine.forward.ids.append(1, {ids.begin(), ids.begin() + 512});
    machine.cache.store(1, std::span(ids).first(512), 512, true);
    while (machine.cache.is_coming(*fetch, 1s)) {
    }
    CHECK(machine.cache.take(0, ids, 0) == 1024);
    CHECK(machine.forward.ids.holds(0, ids));
    CHECK(machine.forward.ids.table(0)[1] == machine.forward.ids.table(1)[1]);
    CHECK(machine.cache.statistics().shared_tokens == 512);
    CHECK(machine.cache.statistics().device_tokens == 512);
}

TEST_CASE("what is nowhere another machine computes, and only prompts of more than a page ask it") {
    struct Strong { // computes by running, too
        IdForward forward{1, 64};
        PrefixCache cache{forward, owner, {.memory_bytes = 1 << 24}};
        int calls = 0;
        uint32_t known = 0;

        void compute(const PageOrder& order, const PageReceiver& receiver) {
            calls++;
            known = order.known;
            forward.ids.append(0, order.ids);
            cache.store(0, order.ids, uint32_t(order.ids.size()), true);
            PageName parent = owner_name(owner);
            for (size_t at = 0; at < order.ids.size(); at += page_tokens) {
                const auto ids = std::span<const uint32_t>(order.ids);
                const PageHead head = make_page_head(owner_name(owner), parent, ids.subspan(at, page_tokens), page_tokens);
                parent = head.name;
                const auto content = cache.content(ids.first(at + page_tokens));
                if (at >= known * page_tokens) receiver.page(sent_page(head, content.value(), {}));
            }
            forward.ids.truncate(0, 0);
        }
    } strong;
    const auto shelf = std::make_shared<Shelf>();
    RemotePages::Options remote;
    remote.compute = [&](const PageOrder& order, const PageReceiver& receiver) { strong.compute(order, receiver); };
    remote.owner = owner_name(owner);
    IdForward forward(3, 32);
    PrefixCache cache(forward, owner, {.memory_bytes = 1 << 24, .shared = test::on(shelf), .remote = remote});
    const auto run = [&](const Ids& ids, uint32_t slot, std::string_view tenant, bool asks = true) {
        forward.ids.truncate(slot, 0);
        const auto fetch = cache.fetch(ids, 0, tenant, asks);
        while (fetch && cache.is_coming(*fetch, 1s)) {
        }
        const uint32_t found = cache.take(slot, ids, 0, true, tenant);
        forward.ids.truncate(slot, found);
        REQUIRE(forward.ids.holds(slot, ids));
        return found;
    };
    CHECK(run(sequence(1, 1200), 0, "one") == 1024);
    CHECK(cache.statistics().remote_tokens == 1024);
    CHECK(cache.statistics().shared_tokens == 0);
    CHECK(cache.statistics().remote->found == 4);
    CHECK(run(sequence(2, 256), 1, "one") == 0);
    CHECK(strong.calls == 1);
    CHECK(run(sequence(2, 257), 1, "one") == 256); // a page, and one token more
    CHECK(strong.calls == 2);
    CHECK(run(sequence(3, 600), 1, "one", false) == 0); // of a request that came from another machine
    Machine(shelf).run(sequence(4, 520), "two");        // whose two pages are in the store
    Ids longer = sequence(4, 1500);
    CHECK(run(longer, 2, "two") == 1280);
    CHECK(strong.known == 2);
    CHECK(cache.statistics().shared_tokens == 512);
    CHECK(cache.statistics().remote_tokens == 1024 + 256 + 768);
    CHECK(cache.take_warnings().empty());
    CHECK_FALSE(strong.cache.content(Ids(longer.begin() + 256, longer.begin() + 512))); // not what it begins with
}
