// The bytes of a page: codes, scales and the first tokens' vectors of all layers, without gaps.
#include "model/kv/page_layout.h"
#include <doctest/doctest.h>
#include <numeric>

using namespace tq;

namespace {

constexpr uint32_t heads = 3;

PageLayout small_layout() { return {heads, {{4, 1, 8}, {3, 2, 8}, {16, 0, 0}, {16, 0, 0}}}; } // the second layer is plain

// Writes the number of each part of a page of `tokens` tokens into all of its bytes.
std::vector<std::byte> numbered(const PageLayout& layout, uint32_t tokens) {
    std::vector<std::byte> page(layout.bytes(tokens));
    uint8_t number = 0;
    for (uint32_t layer = 0; layer < layout.layers(); layer++)
        for (const KvSide side : {KvSide::key, KvSide::value})
            for (uint32_t head = 0; head < heads; head++)
                for (const auto part : {layout.codes(std::span(page), tokens, layer, side, head),
                                        layout.scales(std::span(page), tokens, layer, side, head),
                                        layout.sink(std::span(page), tokens, layer, side, head)}) {
                    number++;
                    for (std::byte& byte : part) {
                        CHECK(byte == std::byte(0)); // no other part has it
                        byte = std::byte(number);
                    }
                }
    return page;
}

} // namespace

TEST_CASE("the parts of a page are all of its bytes") {
    const PageLayout layout = small_layout();
    for (const uint32_t tokens : {1u, 2u, 3u, 255u, 256u}) {
        CHECK(layout.bytes(tokens) ==
              heads * (tokens * (4 * (4 + 3 + 16 + 16) + 2 * (1 + 2)) + std::min(tokens, 2u) * 2 * 8 * 4));
        CHECK(layout.tokens(layout.bytes(tokens)) == tokens);
        const std::vector<std::byte> page = numbered(layout, tokens);
        CHECK(std::ranges::find(page, std::byte(0)) == page.end());
    }
    CHECK(layout.bytes(0) == 0);
    CHECK(layout.tokens(0) == 0);
    CHECK(numbered(layout, 0).empty());
}

TEST_CASE("a part of a page keeps the vectors of the first tokens that it has") {
    const PageLayout layout = small_layout();
    const std::vector<std::byte> page = numbered(layout, 256);
    for (const uint32_t wanted : {1u, 2u, 7u, 256u}) {
        std::vector<std::byte> begin(layout.bytes(wanted));
        copy_first_tokens(layout, begin, wanted, page, 256);
        CHECK(begin == numbered(layout, wanted));
    }
}
