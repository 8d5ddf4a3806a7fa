// Checkpoints: what a slot has beside its pages, at the lengths to which it can be cut.
#include "model/cache.h"
#include "tests/support/toy_vectors.h"
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <random>

using namespace tq;

namespace {

using Numbers = std::vector<uint32_t>;

uint32_t state_of(std::span<const uint32_t> numbers) {
    uint32_t state = 0;
    for (const uint32_t number : numbers) state = state * 31 + number + 1;
    return state;
}

// A cache whose slots have recurrent states: each is a number that depends on all tokens, and that a run changes in place.
class Recurrent final : public Cache, private ToyVectors {
  public:
    explicit Recurrent(uint32_t slots, uint64_t checkpoint_bytes = 1 << 20, uint32_t pages = 200)
        : Cache(
              {.slots = slots, .pages = pages, .context_size = 40'000, .recurrent = true, .checkpoint_bytes = checkpoint_bytes}),
          states_(slots) {
        store_in(*this);
    }

    void append(uint32_t slot, std::span<const uint32_t> numbers) {
        reserve(slot, uint32_t(numbers.size()));
        write_ahead(slot, numbers);
        advance(slot, uint32_t(numbers.size()));
    }
    // Changes the states as a pass does that is then stopped.
    void write_ahead(uint32_t slot, std::span<const uint32_t> numbers) {
        for (const uint32_t number : numbers) states_[slot] = states_[slot] * 31 + number + 1;
    }
    uint32_t state(uint32_t slot) const { return states_[slot]; }
    bool fails = false; // to write a state

  private:
    uint64_t state_bytes() const override { return sizeof(uint32_t); }
    void read_state(uint32_t slot, uint32_t, std::span<std::byte> bytes) const override {
        std::memcpy(bytes.data(), &states_[slot], 4);
    }
    void write_state(uint32_t slot, uint32_t, std::span<const std::byte> bytes) override {
        if (fails) throw std::bad_alloc();
        std::memcpy(&states_[slot], bytes.data(), 4);
    }
    void copy_state(uint32_t from, uint32_t to) override { states_[to] = states_[from]; }
    void clear_state(uint32_t slot) override { states_[slot] = 0; }

    std::vector<uint32_t> states_;
};

Numbers numbers_from(uint32_t first, uint32_t count) {
    Numbers all;
    for (uint32_t i = 0; i < count; i++) all.push_back(first + i);
    return all;
}

} // namespace

TEST_CASE("a slot with states is cut at its longest checkpoint, or to nothing") {
    Recurrent cache(2);
    const Numbers all = numbers_from(0, 600);
    for (const uint32_t end : {100u, 300u, 600u}) {
        cache.append(0, std::span(all).subspan(cache.position(0), end - cache.position(0)));
        if (end != 600) cache.checkpoint(0);
    }
    cache.checkpoint(1); // an empty slot has none
    CHECK(cache.checkpoints(0) == Numbers{100, 300});
    CHECK(cache.checkpoints(1).empty());
    CHECK(cache.kept(0, 600) == 600);
    CHECK(cache.kept(0, 599) == 300);
    CHECK(cache.kept(0, 300) == 300);
    CHECK(cache.kept(0, 299) == 100);
    CHECK(cache.kept(0, 99) == 0);
    cache.write_ahead(0, numbers_from(7, 20)); // a pass of 20 tokens was stopped
    CHECK(cache.kept(0, 600, 620) == 300);
    CHECK(cache.cut(0, 600, 620) == 300);
    CHECK(cache.state(0) == state_of(std::span(all).first(300)));
    cache.append(0, std::span(all).subspan(300, 50));
    CHECK(cache.cut(0, 200) == 100);
    CHECK(cache.checkpoints(0) == Numbers{100});
    CHECK(cache.state(0) == state_of(std::span(all).first(100)));
    CHECK(cache.cut(0, 99) == 0);
    CHECK(cache.checkpoints(0).empty());
    cache.append(0, std::span(all).first(5));
    CHECK(cache.state(0) == state_of(std::span(all).first(5)));
}

TEST_CASE("a fork has the checkpoints of what it shares, and pages that are adopted have those of a slot's own") {
    Recurrent cache(3);
    const Numbers all = numbers_from(0, 560);
    for (const uint32_t end : {300u, 512u, 560u}) {
        cache.append(0, std::span(all).subspan(cache.position(0), end - cache.position(0)));
        cache.checkpoint(0);
    }
    cache.append(1, numbers_from(50, 3));
    cache.fork(0, 1, 512);
    CHECK(cache.state(1) == state_of(std::span(all).first(512)));
    CHECK(cache.checkpoints(1) == Numbers{300, 512});
    cache.fork(0, 2, 560);
    CHECK(cache.state(2) == state_of(all));
    CHECK(cache.checkpoint_at(0, 512) == cache.checkpoint_at(1, 512)); // it is not copied
    const auto at_512 = cache.checkpoint_at(0, 512);
    cache.truncate(2, 300);
    cache.append(2, numbers_from(9, 10)); // its last page is now its own
    const Numbers pages(cache.table(0).begin(), cache.table(0).begin() + 2);
    cache.adopt(2, pages, 512, at_512);
    CHECK(cache.checkpoints(2) == Numbers{512}); // 300 was in another page
    CHECK(cache.state(2) == state_of(std::span(all).first(512)));
    cache.truncate(0, 512);
    cache.adopt(0, pages, 512, at_512);
    CHECK(cache.checkpoints(0) == Numbers{300, 512});
    CHECK(cache.cut(0, 400) == 300);
    CHECK(cache.state(0) == state_of(std::span(all).first(300)));
}

TEST_CASE("of many checkpoints those stay whose distances from the end grow, and the last two") {
    const auto left = [](Numbers lengths) {
        for (const size_t i : superfluous_checkpoints(lengths)) lengths.erase(lengths.begin() + ptrdiff_t(i));
        return lengths;
    };
    Numbers every_2k;
    for (uint32_t n = 1; n <= 64; n++) every_2k.push_back(2048 * n);
    CHECK(left(every_2k) == Numbers{2048, 48 * 2048, 60 * 2048, 63 * 2048, 64 * 2048});
    CHECK(left({}) == Numbers{});
    CHECK(left({1, 2, 3}) == Numbers{1, 2, 3});
    CHECK(left({1, 100, 110, 120, 200}) == Numbers{1, 120, 200});
    CHECK(left({5000, 9000, 9003}) == Numbers{5000, 9000, 9003});
    Recurrent cache(1);
    Numbers all;
    for (uint32_t n = 1; n <= 300; n++) { // short turns: to undo one costs no token, to undo several few
        const Numbers turn = numbers_from(n, 100);
        cache.append(0, turn);
        cache.checkpoint(0);
        CHECK(cache.checkpoints(0).size() <= 14);
        CHECK(cache.kept(0, 100 * n - 100) == 100 * n - 100);
        for (uint32_t back = 1; back < n; back++) {
            const uint32_t kept = cache.kept(0, 100 * (n - back));
            CHECK(100 * (n - back) - kept <= 400 * back);
        }
    }
}

TEST_CASE("checkpoints of all slots stay within their bytes: the one that costs the fewest tokens goes") {
    Recurrent cache(2, 3 * sizeof(uint32_t));
    const auto run = [&](uint32_t slot, uint32_t tokens) {
        cache.append(slot, numbers_from(0, tokens));
        cache.checkpoint(slot);
    };
    run(0, 1000);
    run(0, 100);
    run(0, 20);
    CHECK(cache.checkpoints(0) == Numbers{1000, 1100, 1120});
    run(1, 50); // the newest stays
    CHECK(cache.checkpoints(0) == Numbers{1000, 1100});
    CHECK(cache.checkpoints(1) == Numbers{50});
    run(1, 2000);
    CHECK(cache.checkpoints(0) == Numbers{1000, 1100});
    CHECK(cache.checkpoints(1) == Numbers{2050});
    Recurrent none(1, 3);
    none.append(0, numbers_from(0, 10));
    none.checkpoint(0);
    CHECK(none.checkpoints(0).empty());
}

TEST_CASE("a slot whose state cannot be put back is empty") {
    Recurrent cache(1);
    cache.append(0, numbers_from(0, 300));
    cache.checkpoint(0);
    cache.append(0, numbers_from(0, 300));
    cache.fails = true;
    CHECK_THROWS_AS(cache.cut(0, 400), std::bad_alloc);
    CHECK(cache.position(0) == 0);
    CHECK(cache.checkpoints(0).empty());
    CHECK(cache.free_pages() == cache.shape().pages);
}

TEST_CASE("a random walk leaves each slot the state of its tokens") {
    std::mt19937 random(5);
    constexpr uint32_t slots = 4;
    for (const uint64_t bytes : {12u, 1u << 20}) {
        Recurrent cache(slots, bytes);
        std::array<Numbers, slots> expected;
        uint32_t cuts = 0;
        for (int step = 0; step < 3000; step++) {
            const uint32_t slot = uint32_t(random() % slots), other = uint32_t((slot + 1 + random() % (slots - 1)) % slots);
            const uint32_t n = uint32_t(random() % (expected[slot].size() + 1)), kept = cache.kept(slot, n);
            REQUIRE(kept <= n);
            switch (random() % 6) {
            case 0:
                CHECK(cache.cut(slot, n) == kept);
                expected[slot].resize(kept);
                cuts += kept > 0;
                break;
            case 1:
                cache.fork(slot, other, kept);
                expected[other].assign(expected[slot].begin(), expected[slot].begin() + kept);
                break;
            case 2: cache.checkpoint(slot); break;
            default: {
                if (expected[slot].size() > 2000) break;
                const Numbers more = numbers_from(uint32_t(step), 1 + uint32_t(random() % 300));
                cache.append(slot, more);
                expected[slot].insert(expected[slot].end(), more.begin(), more.end());
            }
            }
            for (uint32_t i = 0; i < slots; i++) REQUIRE((expected[i].empty() || cache.state(i) == state_of(expected[i])));
        }
        CHECK(cuts > 30);
    }
}

TEST_CASE("a slot is cut to any of its pending tokens, and not behind those that its states are after") {
    class Pending final : public Cache, private ToyVectors {
      public:
        Pending() : Cache({.slots = 2, .pages = 8, .context_size = 1000, .recurrent = true, .pending = 4}) { store_in(*this); }
        std::vector<std::pair<uint32_t, uint32_t>> settled_by = {};

      private:
        void settle_state(uint32_t, uint32_t settled, uint32_t tokens) override { settled_by.emplace_back(settled, tokens); }
    };
    Pending cache;
    cache.reserve(0, 10);
    cache.advance(0, 10);
    cache.reserve(0, 5);
    cache.advance(0, 5, 11); // one token and four drafts
    CHECK(cache.settled(0) == 11);
    CHECK(cache.kept(0, 13) == 13);
    CHECK(cache.kept(0, 11) == 11);
    CHECK(cache.kept(0, 10) == 0);
    CHECK(cache.kept(0, 13, 16) == 0); // a pass that was stopped may have changed the states
    cache.truncate(0, 13);
    CHECK(cache.settled(0) == 11);
    CHECK(cache.settled_by.empty());
    cache.fork(0, 1, 12);
    CHECK(cache.settled(1) == 11);
    CHECK(cache.position(1) == 12);
    cache.settle(0);
    CHECK(cache.settled_by == std::vector<std::pair<uint32_t, uint32_t>>{{11, 13}});
    CHECK(cache.kept(0, 12) == 0);
    cache.truncate(0, 0);
    CHECK(cache.settled(0) == 0);
}
