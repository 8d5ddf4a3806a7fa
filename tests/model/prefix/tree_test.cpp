// The tree of known ids: the longest beginning is found to the token, branches stay, and pages go before those that they follow.
#include "model/cache.h"
#include "model/prefix/tree.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace tq;

namespace {

using Ids = std::vector<uint32_t>;

Ids ids_from(uint32_t begin, uint32_t count) {
    Ids ids(count);
    std::iota(ids.begin(), ids.end(), begin);
    return ids;
}

// Adds a sequence with `cold` cold tokens.
PrefixNode& add(PrefixTree& tree, const Ids& ids, uint32_t cold) {
    PrefixNode* node = &tree.root();
    for (uint32_t at = 0; at < ids.size(); at += page_tokens) {
        const uint32_t count = std::min(page_tokens, uint32_t(ids.size()) - at);
        node = &tree.insert(*node, std::span(ids).subspan(at, count), cold > at ? std::min(cold - at, count) : 0);
        tree.take_superseded(*node);
        if (!node->is_full()) break;
    }
    return *node;
}
PrefixNode& add(PrefixTree& tree, const Ids& ids) { return add(tree, ids, uint32_t(ids.size())); }

uint32_t count(PrefixTree& tree) {
    uint32_t n = 0;
    tree.each([&](PrefixNode&) { n++; });
    return n;
}

} // namespace

TEST_CASE("the longest beginning of any sequence is found, to the token") {
    PrefixTree tree({1, 1});
    std::mt19937 random(3);
    std::vector<Ids> all;
    for (int i = 0; i < 60; i++) {
        Ids ids;
        if (!all.empty()) { // a branch of another
            const Ids& from = all[random() % all.size()];
            ids.assign(from.begin(), from.begin() + ptrdiff_t(random() % (from.size() + 1)));
        }
        for (uint32_t more = 1 + uint32_t(random() % 600); more > 0; more--) ids.push_back(uint32_t(random() % 2));
        add(tree, ids);
        all.push_back(ids);
        for (int j = 0; j < 10; j++) {
            const Ids& from = all[random() % all.size()];
            Ids query(from.begin(), from.begin() + ptrdiff_t(random() % (from.size() + 1)));
            for (uint32_t more = uint32_t(random() % 20); more > 0; more--) query.push_back(uint32_t(random() % 2));
            size_t best = 0;
            for (const Ids& known : all) best = std::max(best, size_t(std::ranges::mismatch(query, known).in1 - query.begin()));
            const auto found = tree.find(query);
            REQUIRE(found.tokens == best);
            REQUIRE(found.pages.size() == pages_of(best));
            Ids there;
            for (const PrefixNode* node : found.pages) there.insert(there.end(), node->head.ids.begin(), node->head.ids.end());
            REQUIRE(std::equal(query.begin(), query.begin() + ptrdiff_t(best), there.begin()));
        }
    }
}

TEST_CASE("exactly, only cold tokens are found; otherwise sampled ones too, before cold ones of the same ids") {
    PrefixTree tree({1, 1});
    const Ids ids = ids_from(0, 600);
    add(tree, ids, 300);
    CHECK(tree.find(ids).tokens == 300);
    CHECK(tree.find(ids, false).tokens == 600);
    CHECK(tree.find(ids_from(0, 290)).tokens == 290);
    add(tree, ids); // the same as a prompt
    CHECK(tree.find(ids).tokens == 600);
    const auto cold = tree.find(ids), sampled = tree.find(ids, false);
    CHECK(sampled.tokens == 600);
    CHECK(cold.pages[0] == sampled.pages[0]);
    CHECK(cold.pages[1]->head.cold == 256);
    CHECK(sampled.pages[1]->head.cold == 44);
    CHECK(sampled.pages[2]->head.cold == 0);
    CHECK(cold.pages[1]->head.name != sampled.pages[1]->head.name);
}

TEST_CASE("after a sampled page nothing is cold") {
    PrefixTree tree({1, 1});
    const Ids ids = ids_from(0, 512);
    PrefixNode& first = tree.insert(tree.root(), std::span(ids).first(256), 255);
    CHECK(tree.insert(first, std::span(ids).subspan(256), 256).head.cold == 0);
    CHECK(tree.find(ids).tokens == 255);
}

TEST_CASE("a page that was partly filled gives way to one with more of the same, and to no other") {
    PrefixTree tree({1, 1});
    const Ids ids = ids_from(0, 200);
    add(tree, ids_from(0, 50));
    CHECK(add(tree, ids_from(0, 40)).head.tokens() == 50); // it is there already
    CHECK(count(tree) == 1);
    add(tree, ids_from(0, 100), 60);
    CHECK(count(tree) == 1);
    CHECK(tree.find(ids).tokens == 60);
    CHECK(tree.find(ids, false).tokens == 100);
    add(tree, ids_from(0, 110), 55); // fewer of them are cold
    CHECK(count(tree) == 2);
    CHECK(tree.find(ids).tokens == 60);
    CHECK(tree.find(ids, false).tokens == 110);
    Ids branch = ids_from(0, 150);
    branch[20] = 7;
    add(tree, branch);
    CHECK(count(tree) == 3);
    CHECK(tree.find(ids).tokens == 60);
    CHECK(tree.find(branch).tokens == 150);
    add(tree, ids_from(0, 256));
    CHECK(count(tree) == 2);
}

TEST_CASE("names follow the whole way from the owner") {
    PrefixTree a({1, 1}), b({1, 2});
    const Ids ids = ids_from(0, 300);
    Ids other = ids;
    other[0] = 9;
    const PageName name = add(a, ids).head.name;
    CHECK(add(b, ids).head.name != name);
    CHECK(add(a, other).head.name != name); // its own ids are the same
    CHECK(add(a, other).head.ids == add(a, ids).head.ids);
}

TEST_CASE("the least recently used page goes first, and always before those that it follows") {
    PrefixTree tree({1, 1});
    std::mt19937 random(5);
    std::map<uint32_t, Ids> sequences;
    for (uint32_t i = 0; i < 12; i++) {
        sequences[i] = ids_from(i % 3, 256 * (i % 3) + 20); // they share pages
        for (uint32_t& id : sequences[i]) id = id % 256 < 200 ? id : id + 1000 * i;
        tree.touch(add(tree, sequences[i]));
    }
    tree.each([](PrefixNode& node) { node.device = 1; });
    const auto is_there = [](const PrefixNode& node) { return node.device.has_value(); };
    const Ids& used = sequences[5];
    tree.touch(*tree.find(used).pages.back());
    std::vector<PrefixNode*> gone;
    while (PrefixNode* node = tree.least_recent(is_there)) {
        for (const auto& child : node->children) REQUIRE_FALSE(child->device);
        node->device.reset();
        gone.push_back(node);
    }
    REQUIRE(gone.size() == count(tree));
    const auto found = tree.find(used).pages;
    CHECK(std::equal(found.rbegin(), found.rend(), gone.end() - ptrdiff_t(found.size()))); // what was used last goes last
}

TEST_CASE("pages that are nowhere leave the tree, unless others that are follow them") {
    PrefixTree tree({1, 1});
    add(tree, ids_from(0, 600)).device = 1;
    Ids branch = ids_from(0, 600);
    branch[550] = 0;
    add(tree, branch);
    const auto lost = [](const PrefixNode& node) { return !node.device; };
    CHECK(count(tree) == 4);
    tree.drop_if(lost);
    CHECK(count(tree) == 3);
    CHECK(tree.find(branch).tokens == 550);
    tree.find(ids_from(0, 600)).pages.back()->device.reset();
    tree.drop_if(lost);
    CHECK(count(tree) == 0);
}

TEST_CASE("pages that a search is given are found") {
    PrefixTree tree({1, 1});
    const Ids ids = ids_from(0, 400);
    std::vector<size_t> asked;
    const auto found = tree.find(ids, true, [&](PrefixNode& node, std::span<const uint32_t> rest) {
        asked.push_back(rest.size());
        if (node.children.empty())
            tree.add(node, make_page_head({1, 1}, node.head.name, rest.first(std::min<size_t>(rest.size(), 256)),
                                          uint32_t(std::min<size_t>(rest.size(), 256))));
    });
    CHECK(found.tokens == 400);
    CHECK(asked == std::vector<size_t>{400, 144});
}
