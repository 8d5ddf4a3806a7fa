// Pages on their way through a connection, in whatever pieces they come.
#include "base/error.h"
#include "model/prefix/page_stream.h"
#include <doctest/doctest.h>

using namespace tq;
using Bytes = std::vector<std::byte>;

namespace {

void add(Bytes& to, std::span<const std::byte> more) { to.insert(to.end(), more.begin(), more.end()); }

} // namespace

TEST_CASE("pages arrive whole, in pieces of every size, and signs of life are not taken for pages") {
    const Bytes one(37, std::byte(1)), two(37, std::byte(0));
    Bytes sent;
    for (const Bytes* page : {&one, &two}) {
        add(sent, page_length_bytes(0));
        add(sent, page_length_bytes(37));
        add(sent, *page);
    }
    add(sent, page_length_bytes(0));
    for (size_t piece = 1; piece <= sent.size(); piece++) {
        std::vector<Bytes> pages;
        PageStreamReader reader(37, [&](Bytes page) {
            pages.push_back(std::move(page));
            return true;
        });
        std::span<const std::byte> rest(sent);
        while (!rest.empty()) {
            const size_t n = std::min(piece, rest.size());
            CHECK(reader.push(rest.first(n)));
            rest = rest.subspan(n);
        }
        CHECK(pages == std::vector<Bytes>{one, two});
        CHECK(reader.is_between_pages());
    }
}

TEST_CASE("a stream that ends within a page shows that, wherever it ends") {
    Bytes sent;
    add(sent, page_length_bytes(5));
    add(sent, Bytes(5));
    for (size_t n = 0; n <= sent.size(); n++) {
        PageStreamReader reader(5, [](Bytes) { return true; });
        CHECK(reader.push(std::span(sent).first(n)));
        CHECK(reader.is_between_pages() == (n == 0 || n == sent.size()));
    }
}

TEST_CASE("a page of another length is refused before it comes, and none is read after the last that is wanted") {
    for (const uint64_t length : {uint64_t(1), uint64_t(36), uint64_t(38), uint64_t(1) << 40, UINT64_MAX}) {
        PageStreamReader reader(37, [](Bytes) { return true; });
        CHECK_THROWS_AS(reader.push(page_length_bytes(length)), Error);
    }
    int taken = 0;
    PageStreamReader reader(1, [&](Bytes) { return ++taken < 2; });
    Bytes sent;
    for (int i = 0; i < 3; i++) {
        add(sent, page_length_bytes(1));
        add(sent, Bytes(1));
    }
    CHECK_FALSE(reader.push(sent));
    CHECK(taken == 2);
}
