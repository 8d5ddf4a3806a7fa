// All tokens of a vocabulary as one trie, by their bytes, for Matcher::walk(). It is built once for a model. The nodes are an
// array in the order of a walk that visits a node before those below it, each with the index behind its last descendant (`end`).
// So a walk is a loop over the array without a stack, and leaves a subtree out by a jump. The tokens of a node are those from its
// first to the next node's first in ids_, which is sorted by bytes. Tokens that a text cannot contain have other bytes, or none.
// A special token has those of special_token_bytes(). A base token with a byte from 0xF8 on, which UTF-8 never has, is left out,
// as it could be part of a special token's bytes. has_long marks nodes above tokens of more than short_bytes bytes, so that a
// walk for these alone passes by all others.
#include "model/text/grammar/token_trie.h"
#include "base/error.h"
#include "model/text/grammar/grammar.h"
#include "model/text/special_tokens.h"
#include "model/text/tokenizer.h"
#include <algorithm>

namespace tq::grammar {
namespace {

constexpr size_t max_token_bytes = 65534;
static_assert(max_token_bytes <= UINT16_MAX && SpecialTokens::max_length + 2 <= UINT16_MAX); // Node::depth; special_token_bytes()

// Added tokens are those that encode() finds in markup only.
bool is_special(const Tokenizer& tokenizer, uint32_t id) {
    const auto found = tokenizer.special(tokenizer.bytes(id));
    return tokenizer.is_control(id) || found == id;
}

bool has_impossible_byte(std::string_view bytes) {
    return std::ranges::any_of(bytes, [](char c) { return uint8_t(c) >= 0xF8; });
}

} // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : begins_{0}, is_end_(tokenizer.size()), vocab_size_(tokenizer.size()) {
    for (uint32_t id = 0; id < vocab_size_; ++id) {
        const std::string_view bytes = tokenizer.bytes(id);
        if (bytes.size() > max_token_bytes)
            fail("token {} has {} bytes: at most {} are supported", id, bytes.size(), max_token_bytes);
        is_end_[id] = tokenizer.is_end_of_generation(id);
        if (!tokenizer.is_unused(id) && is_special(tokenizer, id))
            bytes_ += special_token_bytes(bytes);
        else if (!tokenizer.is_unused(id) && !has_impossible_byte(bytes))
            bytes_ += bytes;
        begins_.push_back(bytes_.size());
    }
    build();
}

// The ids in the order of their bytes: a node for each byte that a token does not share with the one before.
void TokenTrie::build() {
    for (uint32_t id = 0; id < vocab_size_; ++id)
        if (!bytes(id).empty()) ids_.push_back(id);
    std::ranges::stable_sort(ids_, [&](uint32_t a, uint32_t b) { return bytes(a) < bytes(b); });
    nodes_.push_back({0, 0, 0, 0, true});
    std::vector<uint32_t> path{0}; // the nodes that lead to the token before
    std::string_view before;
    const auto close = [&](size_t depth) { // all nodes of the path deeper than that
        for (; path.size() > depth + 1; path.pop_back()) nodes_[path.back()].end = uint32_t(nodes_.size());
    };
    for (uint32_t i = 0; i < ids_.size(); ++i) {
        const std::string_view token = bytes(ids_[i]);
        size_t common = 0;
        while (common < std::min(before.size(), token.size()) && before[common] == token[common]) ++common;
        close(common);
        for (size_t depth = common; depth < token.size(); ++depth) {
            path.push_back(uint32_t(nodes_.size()));
            nodes_.push_back({0, i, uint16_t(depth + 1), uint8_t(token[depth]), false});
        }
        if (token.size() > Grammar::short_bytes)
            for (const uint32_t node : path) nodes_[node].has_long = true;
        before = token;
    }
    close(0);
    nodes_[0].end = uint32_t(nodes_.size());
    nodes_.push_back({nodes_[0].end, uint32_t(ids_.size()), 0, 0, false});
}

bool TokenTrie::has_special(std::string_view literal) const {
    const std::string wanted = special_token_bytes(literal);
    return std::ranges::any_of(ids_, [&](uint32_t id) { return bytes(id) == wanted; });
}

} // namespace tq::grammar
