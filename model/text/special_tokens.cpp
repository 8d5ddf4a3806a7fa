// The automaton of Aho and Corasick (1975) over the reversed literals, which reads a text from its end. Behind each byte its
// state is the longest beginning of a reversed literal that ends there. So the literals that the state's text ends with are those
// that begin at this byte, and the longest of them is known at once, without a look at what follows: a forward search would read
// up to max_length bytes for each match, which a hostile vocabulary makes it do for every byte of a text.
#include "model/text/special_tokens.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string, uint32_t>> literals) : literals_(std::move(literals)) {
    std::sort(literals_.begin(), literals_.end());
    size_t total = 0;
    for (const auto& [literal, id] : literals_) {
        ENSURE(!literal.empty() && literal.size() <= max_length, "a literal of {} bytes", literal.size());
        total += literal.size();
    }
    ENSURE(total <= max_total, "literals of {} bytes", total);
    if (!literals_.empty()) build();
}

// The reversed literals below a node are a range of their sorted list. One that ends at the node is the first of the range.
void SpecialTokens::build() {
    std::vector<std::pair<std::string, uint32_t>> backwards; // and the index in literals_
    for (uint32_t i = 0; i < literals_.size(); ++i)
        backwards.emplace_back(std::string(literals_[i].first.rbegin(), literals_[i].first.rend()), i);
    std::sort(backwards.begin(), backwards.end());
    std::vector<std::pair<size_t, size_t>> ranges{{0, backwards.size()}}; // of each node
    nodes_.push_back({.first_child = 0, .fail = 0, .longest = none, .byte = 0});
    for (size_t i = 0, depth = 0, level_end = 1; i < nodes_.size(); ++i) {
        if (i == level_end) {
            ++depth;
            level_end = nodes_.size();
        }
        nodes_[i].first_child = uint32_t(nodes_.size());
        auto [low, high] = ranges[i];
        if (backwards[low].first.size() == depth)
            nodes_[i].longest = backwards[low++].second;
        else
            nodes_[i].longest = nodes_[nodes_[i].fail].longest;
        while (low < high) {
            const char byte = backwards[low].first[depth];
            const size_t begin = low;
            while (low < high && backwards[low].first[depth] == byte) ++low;
            const uint32_t fail = i == 0 ? 0 : step(nodes_[i].fail, uint8_t(byte));
            if (i == 0) roots_children_[uint8_t(byte)] = uint32_t(nodes_.size());
            nodes_.push_back({.first_child = 0, .fail = fail, .longest = none, .byte = uint8_t(byte)});
            ranges.emplace_back(begin, low);
        }
    }
    nodes_.push_back({.first_child = uint32_t(nodes_.size()), .fail = 0, .longest = none, .byte = 0});
}

uint32_t SpecialTokens::step(uint32_t node, uint8_t byte) const {
    for (; node != 0; node = nodes_[node].fail) {
        const auto end = nodes_.begin() + nodes_[node + 1].first_child;
        const auto child = std::lower_bound(nodes_.begin() + nodes_[node].first_child, end, byte,
                                            [](const Node& one, uint8_t wanted) { return one.byte < wanted; });
        if (child != end && child->byte == byte) return uint32_t(child - nodes_.begin());
    }
    return roots_children_[byte];
}

std::vector<SpecialTokens::Match> SpecialTokens::find(std::string_view text) const {
    std::vector<Match> all; // the longest at each position, from the last
    if (literals_.empty()) return all;
    uint32_t node = 0;
    for (size_t begin = text.size(); begin-- > 0;) {
        node = step(node, uint8_t(text[begin]));
        if (const uint32_t longest = nodes_[node].longest; longest != none)
            all.push_back({begin, literals_[longest].first.size(), literals_[longest].second});
    }
    std::vector<Match> out;
    for (auto match = all.rbegin(); match != all.rend(); ++match)
        if (out.empty() || match->begin >= out.back().begin + out.back().length) out.push_back(*match);
    return out;
}

std::optional<uint32_t> SpecialTokens::id(std::string_view literal) const {
    const auto entry = std::lower_bound(literals_.begin(), literals_.end(), literal,
                                        [](const auto& a, std::string_view wanted) { return a.first < wanted; });
    return entry != literals_.end() && entry->first == literal ? std::optional(entry->second) : std::nullopt;
}

} // namespace tq
