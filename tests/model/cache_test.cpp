// The bookkeeping of slots and pages, against a list of tokens for each slot.
#include "base/error.h"
#include "model/cache.h"
#include "tests/support/toy_vectors.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <random>

using namespace tq;

namespace {

// A cache whose vectors are one number for each token.
class Numbers final : public Cache, private ToyVectors {
  public:
    explicit Numbers(const Shape& shape) : Cache(shape), pages_(shape.pages, std::vector<uint32_t>(page_tokens)) {
        store_in(*this);
    }

    void append(uint32_t slot, std::span<const uint32_t> numbers) {
        reserve(slot, uint32_t(numbers.size()));
        for (uint32_t p = position(slot); const uint32_t number : numbers) {
            REQUIRE(references(table(slot)[p / page_tokens]) == 1); // nothing that is shared is written
            pages_[table(slot)[p / page_tokens]][p % page_tokens] = number;
            p++;
        }
        advance(slot, uint32_t(numbers.size()));
    }
    std::vector<uint32_t> content(uint32_t slot) const {
        std::vector<uint32_t> all;
        for (uint32_t p = 0; p < position(slot); p++) all.push_back(pages_[table(slot)[p / page_tokens]][p % page_tokens]);
        return all;
    }

    std::vector<std::pair<uint32_t, uint32_t>> copied_windows;
    uint32_t copied_tokens = 0, copies = 0;

  private:
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override {
        std::ranges::fill(pages_[to], UINT32_MAX);
        std::copy_n(pages_[from].begin(), tokens, pages_[to].begin());
        copied_tokens += tokens;
        copies++;
    }
    void copy_window(uint32_t from, uint32_t to) override { copied_windows.emplace_back(from, to); }
    std::vector<std::vector<uint32_t>> pages_;
};

std::vector<uint32_t> count(uint32_t first, uint32_t n) {
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < n; i++) all.push_back(first + i);
    return all;
}

// Every page is free or has one reference for each slot, and each of `kept`, that has it.
void check_references(const Cache& cache, const std::vector<uint32_t>& kept = {}) {
    std::vector<uint32_t> expected(cache.shape().pages);
    for (uint32_t slot = 0; slot < cache.shape().slots; slot++) {
        REQUIRE(cache.table(slot).size() >= pages_of(cache.position(slot)));
        for (const uint32_t page : cache.table(slot)) expected[page]++;
    }
    for (const uint32_t page : kept) expected[page]++;
    for (uint32_t page = 0; page < expected.size(); page++) REQUIRE(cache.references(page) == expected[page]);
    REQUIRE(cache.free_pages() == uint32_t(std::ranges::count(expected, 0u)));
}

} // namespace

TEST_CASE("a slot has the pages of its tokens") {
    Numbers cache({.slots = 2, .pages = 5, .context_size = 1000});
    CHECK(cache.free_pages() == 5);
    CHECK(cache.room(0) == 1000);
    cache.append(0, count(0, 255));
    CHECK(cache.table(0).size() == 1);
    cache.append(0, count(255, 1));
    CHECK(cache.table(0).size() == 1);
    const uint64_t version = cache.version();
    cache.append(0, count(256, 1));
    CHECK(cache.table(0).size() == 2);
    CHECK(cache.version() > version);
    CHECK(cache.content(0) == count(0, 257));
    cache.append(1, count(0, 3));
    CHECK(cache.room(1) == 3 * page_tokens - 3);
    cache.truncate(0, 256);
    CHECK(cache.table(0).size() == 1);
    cache.truncate(0, 0);
    CHECK(cache.free_pages() == 4);
    check_references(cache);
}

TEST_CASE("a fork shares pages, and a page that is written to is copied") {
    Numbers cache({.slots = 3, .pages = 8, .context_size = 2000, .window_tokens = 7});
    for (const uint32_t end : {100u, 512u, 600u}) {
        cache.append(0, count(cache.position(0), end - cache.position(0)));
        cache.checkpoint(0);
    }
    cache.fork(0, 1, 600);
    CHECK(cache.copied_windows == std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}});
    CHECK(cache.free_pages() == 5);
    CHECK(std::ranges::equal(cache.table(0), cache.table(1)));
    cache.append(1, count(9000, 2)); // the last page is copied, up to token 600
    CHECK(cache.copies == 1);
    CHECK(cache.copied_tokens == 600 - 512);
    CHECK(cache.free_pages() == 4);
    cache.append(0, count(600, 2)); // its last page is its own again
    CHECK(cache.copies == 1);
    cache.fork(0, 2, 100); // within the first page
    cache.append(2, count(8000, 1));
    CHECK(cache.copied_tokens == 600 - 512 + 100);
    cache.fork(0, 2, 512); // the end of a page: nothing to be copied
    cache.append(2, count(7000, 300));
    CHECK(cache.copies == 2);
    CHECK(cache.content(0) == count(0, 602));
    check_references(cache);
    cache.truncate(0, 0);
    std::vector<uint32_t> expected = count(0, 512);
    for (const uint32_t number : count(7000, 300)) expected.push_back(number);
    CHECK(cache.content(2) == expected);
    expected = count(0, 600);
    for (const uint32_t number : count(9000, 2)) expected.push_back(number);
    CHECK(cache.content(1) == expected);
}

TEST_CASE("where there are too few pages, the numbers are said and nothing changes") {
    Numbers cache({.slots = 3, .pages = 3, .context_size = 2000});
    cache.append(0, count(0, 300));
    cache.fork(0, 1, 300);
    const std::vector<uint32_t> table(cache.table(0).begin(), cache.table(0).end());
    const uint64_t version = cache.version();
    CHECK(cache.room(0) == 512 - 300); // its last page must be copied
    CHECK(cache.room(2) == 256);
    CHECK_THROWS_WITH_AS(cache.reserve(0, 213),
                         doctest::Contains("has room for 768 tokens, of which 512 are taken, and for 213 more it needs 512"),
                         OutOfMemory);
    const std::vector<Cache::Need> both{{0, 1}, {2, 1}};
    CHECK_THROWS_AS(cache.reserve(both), OutOfMemory);
    CHECK(cache.version() == version);
    CHECK(cache.copies == 0);
    CHECK(std::ranges::equal(cache.table(0), table));
    CHECK(std::ranges::equal(cache.table(1), table));
    check_references(cache);
    cache.append(0, count(300, 212));
    CHECK(cache.room(0) == 0);
    CHECK(cache.room(1) == 212); // both pages are its own but for the first, which is full
    CHECK(cache.room(2) == 0);
}

TEST_CASE("the last of those that write to a shared page keeps it") {
    Numbers cache({.slots = 3, .pages = 4, .context_size = 2000});
    cache.append(0, count(0, 300));
    cache.fork(0, 1, 300);
    cache.fork(0, 2, 300);
    const std::vector<Cache::Need> all{{0, 1}, {1, 1}, {2, 1}}; // two pages are free
    cache.reserve(all);
    CHECK(cache.copies == 2);
    CHECK(cache.free_pages() == 0);
    check_references(cache);
    for (uint32_t slot = 0; slot < 3; slot++) {
        cache.append(slot, count(1000 * slot, 1));
        CHECK(cache.content(slot).back() == 1000 * slot);
    }
}

TEST_CASE("a page that is kept outlives its slots") {
    Numbers cache({.slots = 1, .pages = 2, .context_size = 512});
    cache.append(0, count(0, 256));
    const uint32_t page = cache.table(0)[0];
    cache.retain(page);
    cache.truncate(0, 0);
    CHECK(cache.free_pages() == 1);
    check_references(cache, {page});
    cache.release(page);
    CHECK(cache.free_pages() == 2);
}

TEST_CASE("a random walk gives each slot its tokens, and loses no page") {
    std::mt19937 random(5);
    for (const uint32_t pages : {6u, 11u}) {
        constexpr uint32_t slots = 4, context = 1100;
        Numbers cache({.slots = slots, .pages = pages, .context_size = context});
        std::array<std::vector<uint32_t>, slots> expected;
        std::vector<uint32_t> kept;
        uint32_t failures = 0, number = 0;
        for (int step = 0; step < 4000; step++) {
            const uint32_t slot = uint32_t(random() % slots), other = uint32_t((slot + 1 + random() % (slots - 1)) % slots);
            const uint32_t n = expected[slot].empty() ? 0 : uint32_t(random() % (expected[slot].size() + 1));
            switch (random() % 8) {
            case 0:
                cache.truncate(slot, n);
                expected[slot].resize(n);
                break;
            case 1:
                cache.fork(slot, other, n);
                expected[other].assign(expected[slot].begin(), expected[slot].begin() + n);
                break;
            case 2:
                if (kept.size() < 2 && !cache.table(slot).empty()) cache.retain(kept.emplace_back(cache.table(slot)[0]));
                break;
            case 3:
                if (!kept.empty()) cache.release(kept.back()), kept.pop_back();
                break;
            case 4: // room that is not used
                if (cache.room(slot) > 0) cache.reserve(slot, uint32_t(1 + random() % std::min(cache.room(slot), 300u)));
                break;
            default: {
                const auto left = context - uint32_t(expected[slot].size());
                const std::vector<uint32_t> more =
                    count(number, std::min(left, uint32_t(random() % 3 == 0 ? 1 : random() % 300)));
                number += uint32_t(more.size());
                const bool fits = more.size() <= cache.room(slot);
                if (fits) {
                    cache.append(slot, more);
                    expected[slot].insert(expected[slot].end(), more.begin(), more.end());
                } else {
                    CHECK_THROWS_AS(cache.reserve(slot, uint32_t(more.size())), OutOfMemory);
                    failures++;
                }
            }
            }
            check_references(cache, kept);
            for (uint32_t i = 0; i < slots; i++) REQUIRE(cache.content(i) == expected[i]);
        }
        CHECK(failures > (pages == 6 ? 300u : 0u));
    }
}
