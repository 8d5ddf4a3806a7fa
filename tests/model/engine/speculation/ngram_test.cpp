// Prompt lookup.
#include "model/engine/speculation/ngram.h"
#include <doctest/doctest.h>
#include <random>

using namespace tq;

namespace {

using Ids = std::vector<uint32_t>;

Ids draft(NgramLookup& drafter, const Ids& ids, uint32_t max) { return drafter.draft(ids, max).ids; }

Ids draft(const Ids& ids, uint32_t max) {
    NgramLookup drafter;
    return draft(drafter, ids, max);
}

} // namespace

TEST_CASE("what followed the last two tokens before is proposed") {
    CHECK(draft(Ids{1, 2, 3, 4, 5, 9, 1, 2}, 3) == Ids{3, 4, 5});
    CHECK(draft(Ids{1, 2, 3, 4, 5, 9, 1, 2}, 1) == Ids{3});
    CHECK(draft(Ids{1, 2, 3, 4, 5, 9, 2}, 3).empty()); // one token is not enough
    CHECK(draft(Ids{1}, 3).empty());
    CHECK(draft(Ids{1, 2, 3}, 3).empty());
    CHECK(draft(Ids{1, 2, 3, 1, 2}, 0).empty());
}

TEST_CASE("of several places the one with the longest match counts, of these the latest") {
    CHECK(draft(Ids{5, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2}, 1) == Ids{3});
    CHECK(draft(Ids{8, 1, 2, 3, 8, 1, 2, 4, 8, 1, 2}, 1) == Ids{4});
}

TEST_CASE("a repetition goes on into itself") {
    CHECK(draft(Ids{1, 2, 1, 2}, 5) == Ids{1, 2, 1, 2, 1});
    CHECK(draft(Ids{9, 7, 7, 7}, 4) == Ids{7, 7, 7, 7});
}

TEST_CASE("after a token that differs a long copy goes on") {
    NgramLookup drafter;
    Ids ids;
    for (uint32_t i = 10; i < 30; i++) ids.push_back(i);
    ids.insert(ids.end(), {99, 10, 11});
    CHECK(draft(drafter, ids, 4) == Ids{12, 13, 14, 15});
    for (uint32_t i = 12; i < 20; i++) ids.push_back(i);
    CHECK(draft(drafter, ids, 2) == Ids{20, 21});
    ids.push_back(55); // in place of 20
    CHECK(draft(drafter, ids, 3) == Ids{21, 22, 23});
    CHECK(drafter.draft(ids, 3).kind == 0); // none matches
    ids.push_back(22);                      // 21 is left out
    CHECK(draft(drafter, ids, 3) == Ids{23, 24, 25});
    CHECK(drafter.draft(ids, 3).kind == 1);
    ids.insert(ids.end(), {23, 24});
    CHECK(draft(drafter, ids, 3) == Ids{25, 26, 27});
    CHECK(drafter.draft(ids, 3).kind == 3);
    for (uint32_t i = 0; i < 20; i++) ids.push_back(200 + i); // it does not
    CHECK(draft(drafter, ids, 3).empty());
}

TEST_CASE("a long copy that is under way is followed before a match elsewhere that is a little longer") {
    NgramLookup drafter;
    Ids ids;
    for (uint32_t i = 10; i < 30; i++) ids.push_back(i);
    ids.insert(ids.end(), {55, 21, 22, 77, 99}); // where 55 in place of 20 was followed by another text
    for (uint32_t i = 10; i < 20; i++) ids.push_back(i);
    CHECK(draft(drafter, ids, 1) == Ids{20});
    ids.insert(ids.end(), {55, 21, 22});
    CHECK(draft(drafter, ids, 2) == Ids{23, 24});
    NgramLookup fresh;
    CHECK(draft(fresh, ids, 1) == Ids{77});
}

TEST_CASE("kinds tell longer matches from shorter ones") {
    Ids ids;
    for (uint32_t i = 0; i < 40; i++) ids.push_back(100 + i);
    NgramLookup drafter;
    uint32_t last = 0;
    for (uint32_t n = 0; n < 30; n++) {
        ids.push_back(100 + n);
        const Draft found = drafter.draft(ids, 2);
        if (n == 0) continue;
        CHECK(found.kind >= last);
        drafter.read(ids); // forgets the copy, which would be resumed
        CHECK(found.kind < NgramDrafter().priors().size());
        last = found.kind;
    }
    CHECK(last + 1 == NgramDrafter().priors().size());
}

TEST_CASE("however a sequence changes, its drafts are those of one that is read at once") {
    std::mt19937 random(1);
    NgramLookup drafter;
    Ids ids;
    for (int i = 0; i < 600; i++) {
        if (random() % 4 == 0) ids.resize(random() % (ids.size() + 1));
        const uint32_t more = 1 + uint32_t(random() % 6);
        for (uint32_t n = 0; n < more; n++) ids.push_back(uint32_t(random() % 5));
        drafter.read(ids); // forgets the copy that is under way
        NgramLookup fresh;
        REQUIRE(draft(drafter, ids, 6) == draft(fresh, ids, 6));
    }
}
