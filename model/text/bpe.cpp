// The symbols of a word are a linked list, its possible merges a heap. Entries whose pair has changed since stay in the heap
// and are recognised by their rank when they are popped: a rank identifies one pair of ids.
#include "model/text/bpe.h"
#include "base/ensure.h"
#include <algorithm>
#include <functional>
#include <numeric>

namespace tq {

// The merges are kept as a table in compressed rows: the joins of a left token are joins_[first_joins_[left]] on, sorted by the
// right token, so that a pair's rank is found by a binary search in one short row.
Bpe::Bpe(const std::array<uint32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges, uint32_t vocab_size,
         std::vector<std::string> partials)
    : vocab_size_(vocab_size), partials_(std::move(partials)), byte_ids_(byte_ids),
      first_joins_(size_t(vocab_size) + partials_.size() + 1, 0) {
    ENSURE(merges.size() < none, "{} merges", merges.size());
    for (const BpeMerge& merge : merges) ++first_joins_[merge.left + 1];
    std::partial_sum(first_joins_.begin(), first_joins_.end(), first_joins_.begin());
    joins_.resize(merges.size());
    std::vector<uint32_t> ends(first_joins_.begin(), first_joins_.end() - 1);
    for (uint32_t rank = 0; rank < merges.size(); ++rank) joins_[ends[merges[rank].left]++] = {merges[rank].right, rank};
    for (const BpeMerge& merge : merges) merged_.push_back(merge.merged);
    for (size_t left = 0; left + 1 < first_joins_.size(); ++left) {
        const auto begin = joins_.begin() + first_joins_[left], end = joins_.begin() + first_joins_[left + 1];
        std::sort(begin, end,
                  [](const Join& a, const Join& b) { return std::pair(a.right, a.rank) < std::pair(b.right, b.rank); });
        for (auto join = begin; join != end; ++join) repeated_ += join != begin && join->right == join[-1].right;
    }
}

uint32_t Bpe::rank_of(uint32_t left, uint32_t right) const {
    const Join* begin = joins_.data() + first_joins_[left];
    const Join* end = joins_.data() + first_joins_[left + 1];
    const Join* join = std::lower_bound(begin, end, right, [](const Join& a, uint32_t id) { return a.right < id; });
    return join != end && join->right == right ? join->rank : none;
}

// Stores the rank of the merge of `left` with its next symbol, in the symbol and at the end of the queue.
void Bpe::rank_pair(Scratch& scratch, uint32_t left) const {
    auto& symbol = scratch.symbols_[left];
    symbol.rank = symbol.next == none ? none : rank_of(symbol.id, scratch.symbols_[symbol.next].id);
    if (symbol.rank != none) scratch.queue_.push_back(uint64_t(symbol.rank) << 32 | left);
}

// The left symbol becomes the merged one and takes the next out of the list. Its pairs with both neighbours are other pairs now:
// they get ranks and entries of their own, and the entries of the old pairs are passed over when they are popped.
void Bpe::merge_next(Scratch& scratch, uint32_t left) const {
    auto& symbol = scratch.symbols_[left];
    auto& eaten = scratch.symbols_[symbol.next];
    symbol.id = merged_[symbol.rank];
    symbol.next = eaten.next;
    eaten.rank = none;
    if (symbol.next != none) scratch.symbols_[symbol.next].previous = left;
    auto& queue = scratch.queue_;
    for (const uint32_t index : {left, symbol.previous}) {
        if (index == none) continue;
        const size_t before = queue.size();
        rank_pair(scratch, index);
        if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
}

// A text that is no token has the tokens of its bytes.
void Bpe::append(std::vector<uint32_t>& ids, uint32_t id) const {
    if (id < vocab_size_) return ids.push_back(id);
    for (const char byte : partials_[id - vocab_size_])
        if (const uint32_t token = byte_ids_[uint8_t(byte)]; token < vocab_size_) ids.push_back(token);
}

// The result is that of the textbook loop, which looks for the lowest rank in the whole word after each merge and needs time
// quadratic in the word: a heap of (rank, position) yields the same order in n log n, ties by position from the left. That
// matters, because a word may be long: a text without spaces is one.
void Bpe::encode(std::string_view word, std::vector<uint32_t>& ids, Scratch& scratch) const {
    ENSURE(word.size() < none, "a word of {} bytes", word.size());
    auto& symbols = scratch.symbols_;
    auto& queue = scratch.queue_;
    symbols.clear();
    queue.clear();
    symbols.reserve(word.size()); // neither grows while it is filled, which would take half as much again
    queue.reserve(2 * word.size());
    for (const char byte : word)
        if (const uint32_t id = byte_ids_[uint8_t(byte)]; id != none)
            symbols.push_back({id, uint32_t(symbols.size()) - 1, uint32_t(symbols.size()) + 1, none}); // 0 - 1 is none
    if (symbols.empty()) return;
    symbols.back().next = none;
    const uint32_t count = uint32_t(symbols.size());
    for (uint32_t i = 0; i < count; ++i) rank_pair(scratch, i);
    std::make_heap(queue.begin(), queue.end(), std::greater<>());
    while (!queue.empty()) {
        std::pop_heap(queue.begin(), queue.end(), std::greater<>());
        const uint32_t rank = uint32_t(queue.back() >> 32), left = uint32_t(queue.back());
        queue.pop_back();
        if (symbols[left].rank == rank) merge_next(scratch, left);
    }
    for (uint32_t i = 0; i != none; i = symbols[i].next) append(ids, symbols[i].id);
}

} // namespace tq
