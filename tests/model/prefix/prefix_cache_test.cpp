// The three places of pages: with a toy cache, whose pages' bytes are the ids themselves, so that every mistake shows.
#include "base/error.h"
#include "model/prefix/cache.h"
#include "tests/support/id_forward.h"
#include "tests/support/temporary_file.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <random>

using namespace tq;

namespace {

using Ids = std::vector<uint32_t>;

constexpr uint64_t page_bytes = page_tokens * 8;
const OwnerTexts owner{{"fingerprint", "1"}};

Ids sequence(uint32_t number, uint32_t count) {
    Ids ids(count);
    for (uint32_t i = 0; i < count; i++) ids[i] = number * 10000 + i;
    return ids;
}

// Runs a prompt in a slot as a session does; returns the tokens that were found.
uint32_t run_prompt(IdForward& forward, PrefixCache& cache, uint32_t slot, const Ids& ids) {
    const uint32_t found = cache.take(slot, ids, 0);
    forward.ids.truncate(slot, found);
    REQUIRE(forward.ids.holds(slot, ids));
    forward.ids.append(slot, {ids.begin() + found, ids.end()});
    REQUIRE(forward.ids.holds(slot, ids));
    cache.store(slot, ids, uint32_t(ids.size()), true);
    return found;
}

} // namespace

TEST_CASE("prompts are found in the slots of others, without a copy of whole pages") {
    IdForward forward(3, 32);
    PrefixCache cache(forward, owner, {});
    const Ids ids = sequence(1, 700);
    CHECK(run_prompt(forward, cache, 0, ids) == 0);
    CHECK(forward.ids.referenced() == 3);
    CHECK(run_prompt(forward, cache, 1, ids) == 699);
    CHECK(forward.ids.referenced() == 4); // the last page is its own
    Ids branch = ids;
    branch[300] = 5;
    CHECK(run_prompt(forward, cache, 2, branch) == 300);
    CHECK(forward.ids.table(2)[0] == forward.ids.table(0)[0]);
    CHECK(forward.ids.table(2)[1] != forward.ids.table(0)[1]);
    CHECK(forward.ids.holds(0, ids));
    CHECK(cache.statistics().device_tokens > 0);
    for (uint32_t slot = 0; slot < 3; slot++) forward.ids.truncate(slot, 0);
    CHECK(cache.spare_pages() == forward.ids.referenced());
    CHECK(run_prompt(forward, cache, 0, branch) == 699);
}

TEST_CASE("when the pool is empty, the pages used least recently go, and none that a slot has") {
    IdForward forward(2, 8);
    PrefixCache cache(forward, owner, {});
    run_prompt(forward, cache, 0, sequence(1, 600));
    run_prompt(forward, cache, 1, sequence(2, 600));
    CHECK(run_prompt(forward, cache, 1, sequence(1, 520)) == 519);
    CHECK(run_prompt(forward, cache, 1, sequence(3, 600)) == 0); // sequence 2 gives way
    CHECK(forward.ids.holds(0, sequence(1, 600)));
    CHECK(run_prompt(forward, cache, 1, sequence(2, 600)) < 600);
    CHECK(forward.ids.holds(0, sequence(1, 600)));
    CHECK(run_prompt(forward, cache, 1, sequence(1, 600)) == 599);
    CHECK(forward.ids.room(0) == 8 * 256 - 600 - 2 * 256); // slot 1 has one page of its own, and slot 0 copies its last
    forward.ids.reserve(0, forward.ids.room(0));
    CHECK(forward.ids.holds(1, sequence(1, 600)));
}

TEST_CASE("a slot can grow to the whole pool") {
    IdForward forward(1, 4);
    PrefixCache cache(forward, owner, {});
    run_prompt(forward, cache, 0, sequence(1, 900));
    forward.ids.append(0, sequence(7, 124)); // the page that the tree has, too, is not copied for lack of another
    CHECK(forward.ids.position(0) == 1024);
    CHECK_THROWS_AS(forward.ids.reserve(0, 1), OutOfMemory);
    CHECK(run_prompt(forward, cache, 0, sequence(2, 1024)) == 0);
    CHECK(run_prompt(forward, cache, 0, sequence(2, 1024)) == 1023);
}

TEST_CASE("host memory has what the device gave up, within its limit") {
    IdForward forward(1, 4);
    PrefixCache cache(forward, owner, {.memory_bytes = 6 * page_bytes});
    run_prompt(forward, cache, 0, sequence(1, 1000));
    run_prompt(forward, cache, 0, sequence(2, 1000));
    CHECK(cache.statistics().memory_pages >= 3);
    CHECK(run_prompt(forward, cache, 0, sequence(1, 1000)) >= 768);
    CHECK(cache.statistics().memory_tokens >= 768);
    for (uint32_t i = 3; i < 9; i++) {
        run_prompt(forward, cache, 0, sequence(i, 1000));
        CHECK(cache.statistics().memory_bytes <= 6 * page_bytes);
    }
    CHECK(run_prompt(forward, cache, 0, sequence(2, 1000)) == 0);
    CHECK(run_prompt(forward, cache, 0, sequence(8, 1000)) >= 768);
}

TEST_CASE("without host memory and disk nothing is read back") {
    IdForward forward(1, 4);
    PrefixCache cache(forward, owner, {});
    for (uint32_t i = 0; i < 5; i++) run_prompt(forward, cache, 0, sequence(i, 1000));
    CHECK(forward.ids.reads == 0);
}

TEST_CASE("the disk has all, for later processes too, and a page that is gone cuts what is found") {
    test::TemporaryDirectory directory;
    const PrefixCache::Options options{.disk = {directory.path() / "prefix", 1 << 30}};
    {
        IdForward forward(1, 4);
        PrefixCache cache(forward, owner, options);
        for (uint32_t i = 0; i < 5; i++) run_prompt(forward, cache, 0, sequence(i, 1000));
    }
    IdForward forward(1, 4);
    PrefixCache cache(forward, owner, options);
    for (uint32_t i = 0; i < 5; i++) CHECK(run_prompt(forward, cache, 0, sequence(i, 1000)) == 999);
    CHECK(cache.statistics().disk_tokens == 5000);
    Ids branch = sequence(2, 1000);
    branch[900] = 3;
    CHECK(run_prompt(forward, cache, 0, branch) == 900);
    cache.flush();
    const Ids four = sequence(4, 512); // whose second page goes
    const PageName name = owner_name(owner), parent = name_of_page(name, name, std::span(four).first(256), true);
    const PageEntry second = entry_of(make_page_head(name, parent, std::span(four).subspan(256), 256));
    REQUIRE(std::filesystem::remove(options.disk.directory / name.hex() / second.file_name()));
    IdForward other(1, 4);
    PrefixCache later(other, owner, options);
    CHECK(run_prompt(other, later, 0, sequence(4, 1000)) == 256);
    CHECK(later.take_warnings().empty());
    OwnerTexts stranger = owner;
    stranger["fingerprint"] = "2";
    IdForward third(1, 4);
    PrefixCache theirs(third, stranger, options);
    CHECK(run_prompt(third, theirs, 0, sequence(4, 1000)) == 0);
}

TEST_CASE("what a slot has already stays, and is not looked for") {
    IdForward forward(1, 8);
    PrefixCache cache(forward, owner, {});
    const Ids ids = sequence(1, 700);
    run_prompt(forward, cache, 0, ids);
    const std::vector<uint32_t> table(forward.ids.table(0).begin(), forward.ids.table(0).end());
    CHECK(cache.take(0, ids, 699) == 699);
    CHECK(std::ranges::equal(forward.ids.table(0), table));
    CHECK(cache.take(0, ids, 300) == 699);
    CHECK(forward.ids.holds(0, ids));
    CHECK(cache.take(0, sequence(9, 10), 0) == 0);
}

TEST_CASE("any mixture of prompts, branches, answers and evictions finds only what is right, and leaks no page") {
    test::TemporaryDirectory directory;
    std::mt19937 random(11);
    std::vector<Ids> all;
    for (int process = 0; process < 4; process++) {
        IdForward forward(3, 9);
        {
            PrefixCache cache(
                forward, owner,
                {.memory_bytes = process % 2 * 5 * page_bytes, .disk = {directory.path() / "prefix", 40 * page_bytes}});
            for (int i = 0; i < 150; i++) {
                Ids ids;
                if (!all.empty() && random() % 4 > 0) {
                    const Ids& from = all[random() % all.size()];
                    ids.assign(from.begin(), from.begin() + ptrdiff_t(random() % (from.size() + 1)));
                }
                while (ids.size() < 700 && (ids.empty() || random() % 200 > 0)) ids.push_back(uint32_t(random() % 3));
                const uint32_t slot = uint32_t(random() % 3);
                run_prompt(forward, cache, slot, ids);
                all.push_back(ids);
                if (all.size() > 30) all.erase(all.begin());
                if (random() % 3 == 0) forward.ids.truncate(uint32_t(random() % 3), 0);
            }
            CHECK(cache.take_warnings().empty());
        }
        for (uint32_t slot = 0; slot < 3; slot++) forward.ids.truncate(slot, 0);
        CHECK(forward.ids.free_pages() == 9);
    }
}
