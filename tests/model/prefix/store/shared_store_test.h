// Requirements of every store.
#pragma once
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/shared_store.h"
#include <doctest/doctest.h>
#include <memory>
#include <numeric>
#include <random>

namespace tq::test {

using namespace std::chrono_literals;

inline const OwnerTexts store_owner{{"fingerprint", "1"}, {"model", "a model"}};

inline PageHead page_head(uint32_t number, uint32_t tokens = page_tokens) {
    std::vector<uint32_t> ids(tokens);
    std::iota(ids.begin(), ids.end(), number * 1000);
    return make_page_head(owner_name(store_owner), owner_name(store_owner), ids, tokens);
}
inline PageEntry page_entry(uint32_t number) { return entry_of(page_head(number)); }
inline std::vector<std::byte> random_bytes(uint32_t seed, size_t count) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = std::byte(random());
    return bytes;
}
inline SharedStore::Clock::time_point soon() { return SharedStore::Clock::now() + 20s; }

template <class Use> std::string problem_of(const Use& use) {
    try {
        use();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

inline void check_store(SharedStore& a, SharedStore& b) {
    const auto one = random_bytes(1, 3'000'000), two = random_bytes(2, 1);
    a.probe(soon());
    CHECK_FALSE(a.get(page_entry(1), 3'000'000, soon()));
    CHECK(a.put(page_entry(1), one, false, soon()));
    CHECK(a.put(page_entry(2), two, false, soon()));
    CHECK(b.get(page_entry(1), 3'000'000, soon()) == one);
    CHECK(b.get(page_entry(2), 3'000'000, soon()) == two);
    CHECK_FALSE(b.get(page_entry(3), 3'000'000, soon()));
    CHECK_FALSE(b.put(page_entry(1), two, false, soon())); // the first one stays
    CHECK(a.get(page_entry(1), 3'000'000, soon()) == one);
    CHECK(b.put(page_entry(1), two, true, soon()));
    CHECK(a.get(page_entry(1), 3'000'000, soon()) == two);
    CHECK(b.put(page_entry(4), one, true, soon()));
    CHECK(problem_of([&] { a.get(page_entry(4), 2'999'999, soon()); }).find("has more than the 2999999 bytes of a page") !=
          std::string::npos);
    CHECK(a.get(page_entry(4), 3'000'000, soon()) == one);
}

} // namespace tq::test
