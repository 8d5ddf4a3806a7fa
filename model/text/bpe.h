// Byte-pair encoding of one word: from its bytes, merge the adjacent pair of lowest rank (the leftmost of equals) until no
// pair of neighbours can be merged. Bytes without a token are left out before that, as in Hugging Face's tokenizers.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

struct BpeMerge {
    uint32_t left, right, merged; // token ids; the rank is the index in the list
};

class Bpe {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    // byte_ids: the token of each byte, or `none`. Ids are those of tokens, below vocab_size, or from there on those of partials:
    // texts that merges join and that are no tokens. If two merges join the same pair, the first counts.
    Bpe(const std::array<uint32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges, uint32_t vocab_size,
        std::vector<std::string> partials = {});

    uint32_t repeated() const { return repeated_; } // merges of a pair that an earlier one joins

    // The scratch memory of encode(), kept between words.
    class Scratch {
        friend Bpe;
        struct Symbol {
            uint32_t id, previous, next; // neighbours by index
            uint32_t rank;               // of the merge with the next symbol
        };
        std::vector<Symbol> symbols_;
        std::vector<uint64_t> queue_; // a heap of rank << 32 | index of the left symbol
    };

    // Appends the ids of `word`, less than 4 GiB of any bytes. O(n log n) in its length.
    void encode(std::string_view word, std::vector<uint32_t>& ids, Scratch& scratch) const;

  private:
    struct Join {
        uint32_t right, rank;
    };

    uint32_t rank_of(uint32_t left, uint32_t right) const; // `none` when they do not merge
    void rank_pair(Scratch& scratch, uint32_t left) const;
    void merge_next(Scratch& scratch, uint32_t left) const;
    void append(std::vector<uint32_t>& ids, uint32_t id) const;

    uint32_t vocab_size_, repeated_ = 0;
    std::vector<std::string> partials_;
    std::array<uint32_t, 256> byte_ids_;
    std::vector<Join> joins_;           // by left id, then by right id
    std::vector<uint32_t> first_joins_; // of each left id, and the end
    std::vector<uint32_t> merged_;      // by rank
};

} // namespace tq
