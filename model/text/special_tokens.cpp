// A sorted list walked like a trie: each further byte of the text narrows the range of literals that still fit.
#include "model/text/special_tokens.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string, uint32_t>> literals) : literals_(std::move(literals)) {
    std::sort(literals_.begin(), literals_.end());
    for (const auto& [literal, id] : literals_) {
        ENSURE(!literal.empty() && literal.size() <= max_length, "a literal of {} bytes", literal.size());
        if (first_bytes_.empty() || first_bytes_.back() != literal[0]) first_bytes_ += literal[0];
    }
}

// Literals that agree with the text so far are a range of the sorted list, in which a shorter one stands before those that go on
// from it. So one that is complete at this depth is the first of the range, and the last that is found is the longest.
std::optional<SpecialTokens::Match> SpecialTokens::match_at(std::string_view text, size_t begin) const {
    std::optional<Match> longest;
    auto low = literals_.begin(), high = literals_.end();
    for (size_t depth = 0; low != high; ++depth) {
        if (low->first.size() == depth) {
            longest = Match{begin, depth, low->second};
            ++low;
        }
        if (begin + depth == text.size()) break;
        const uint8_t byte = uint8_t(text[begin + depth]);
        low = std::lower_bound(low, high, byte, [&](const auto& entry, uint8_t b) { return uint8_t(entry.first[depth]) < b; });
        high = std::upper_bound(low, high, byte, [&](uint8_t b, const auto& entry) { return b < uint8_t(entry.first[depth]); });
    }
    return longest;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, size_t from) const {
    for (size_t begin = from; (begin = text.find_first_of(first_bytes_, begin)) != text.npos; ++begin)
        if (const auto match = match_at(text, begin)) return match;
    return std::nullopt;
}

std::optional<uint32_t> SpecialTokens::id(std::string_view literal) const {
    const auto entry = std::lower_bound(literals_.begin(), literals_.end(), literal,
                                        [](const auto& a, std::string_view wanted) { return a.first < wanted; });
    return entry != literals_.end() && entry->first == literal ? std::optional(entry->second) : std::nullopt;
}

} // namespace tq
