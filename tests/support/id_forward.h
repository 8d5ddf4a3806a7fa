// A toy cache, whose pages' bytes are the ids themselves, so that every mistake shows.
#pragma once
#include "model/forward.h"
#include "tests/support/toy_vectors.h"
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <vector>

namespace tq {

// A token's vector is its id, and then the number of its position.
class IdCache final : public Cache, private ToyVectors {
  public:
    IdCache(uint32_t slots, uint32_t pages)
        : Cache({slots, pages, 4096}), words_(pages, std::vector<uint32_t>(2 * page_tokens, 0xdead)) {
        store_in(*this);
    }

    void append(uint32_t slot, const std::vector<uint32_t>& ids) {
        reserve(slot, uint32_t(ids.size()));
        for (uint32_t p = position(slot); const uint32_t id : ids) {
            const uint32_t page = table(slot)[p / page_tokens];
            REQUIRE(references(page) == 1); // nothing that others have is written
            set(page, p++, id);
        }
        advance(slot, uint32_t(ids.size()));
    }
    bool holds(uint32_t slot, std::span<const uint32_t> ids) const {
        for (uint32_t p = 0; p < position(slot); p++) {
            const auto& words = words_[table(slot)[p / page_tokens]];
            if (words[p % page_tokens] != ids[p] || words[page_tokens + p % page_tokens] != p) return false;
        }
        return true;
    }
    uint32_t referenced() const { return shape().pages - free_pages(); }

    PageLayout page_layout() const override { return {1, {{1, 0}, {1, 0}}}; }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        std::memcpy(bytes.data(), words_[page].data(), tokens * 4);
        std::memcpy(bytes.data() + tokens * 4, words_[page].data() + page_tokens, tokens * 4);
        reads++;
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        REQUIRE(references(page) == 1);
        std::ranges::fill(words_[page], 0xbeef);
        std::memcpy(words_[page].data(), bytes.data(), tokens * 4);
        std::memcpy(words_[page].data() + page_tokens, bytes.data() + tokens * 4, tokens * 4);
    }
    mutable uint32_t reads = 0;

  private:
    void copy_page(uint32_t from, uint32_t to, uint32_t) override { words_[to] = words_[from]; }
    void set(uint32_t page, uint32_t position, uint32_t id) {
        words_[page][position % page_tokens] = id;
        words_[page][page_tokens + position % page_tokens] = position;
    }
    std::vector<std::vector<uint32_t>> words_;
};

class IdForward final : public Forward {
  public:
    IdForward(uint32_t slots, uint32_t pages) : ids(slots, pages) {}
    using Forward::run;
    bool run(std::span<const Span>, const SpanLogits&, const Progress&) override { return false; }
    Cache& cache() override { return ids; }
    const ForwardFacts& facts() const override { return facts_; }
    IdCache ids;

  private:
    const ForwardFacts facts_{.kv = {}, .kv_bytes_per_token = 8, .max_separate_rows = 1};
};

} // namespace tq
