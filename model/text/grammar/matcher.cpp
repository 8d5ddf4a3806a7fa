// The mask of a state is found by a walk through the trie of all tokens: a node is visited if its bytes follow the grammar, so
// that the cost of a walk depends on the allowed tokens, not on all. Most states share most of it. A stack of rules is therefore
// cut below the first rule that can match a text of any length (StateTable::parts): the tokens that the rule allows by itself are
// computed once for all places that call it (Part::mask), with the nodes at which it may have ended; only behind these the walk
// goes on with the caller's rest. Places within a long repetition differ in the count that is left, which only long tokens can
// exhaust: for short ones they share the mask of one of them (StateTable::canonical), and long ones are tried in each. All of
// this is forgotten when it is large.
#include "model/text/grammar/matcher.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/printable.h"
#include <algorithm>

namespace tq::grammar {
namespace {

constexpr size_t max_masks = 256, max_parts = 512; // of some 19 KB each for Qwen3's vocabulary

} // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)), table_(*grammar_), history_{table_.start()}, path_(65536) {
    for (const std::string& token : grammar_->tokens())
        if (!tokens_->has_special(token))
            fail("the grammar names the token {}, which is no special token of this model", printable(token));
    for (uint32_t id = 0; id < tokens_->vocab_size(); ++id)
        if (tokens_->is_end(id)) ends_.push_back(id);
}

// Visits the nodes below `root`, which is in `state`, as long as their bytes follow the grammar.
void Matcher::walk(std::vector<uint64_t>& mask, uint32_t root, StateTable::State state, std::vector<uint32_t>* returns,
                   Tokens which) {
    const auto nodes = tokens_->nodes();
    const uint32_t end = nodes[root].end;
    path_[nodes[root].depth] = state;
    for (uint32_t i = root + 1; i < end;) {
        const TokenTrie::Node& node = nodes[i];
        const bool left_out =
            which == Tokens::are_long ? !node.has_long : which == Tokens::are_short && node.depth > Grammar::short_bytes;
        const StateTable::State next = left_out ? StateTable::dead : table_.next(path_[node.depth - 1u], node.byte);
        if (next == StateTable::dead) {
            i = node.end;
            continue;
        }
        path_[node.depth] = next;
        for (const uint32_t id : tokens_->tokens(i)) mask[id / 64] |= uint64_t(1) << id % 64;
        if (returns && node.end > i + 1 && table_.may_return(next)) returns->push_back(i);
        ++i;
    }
}

const Matcher::Part& Matcher::part(StateTable::State state, Tokens which) {
    auto& parts = which == Tokens::are_short ? short_parts_ : parts_;
    const auto known = parts.find(state);
    if (known != parts.end()) return known->second;
    if (parts.size() >= max_parts) parts.clear();
    Part part{std::vector<uint64_t>((tokens_->vocab_size() + 63) / 64), {}};
    walk(part.mask, 0, state, &part.returns, which);
    return parts.emplace(state, std::move(part)).first->second;
}

void Matcher::add_part(std::vector<uint64_t>& mask, const Part& part, uint32_t rest) {
    for (size_t i = 0; i < mask.size(); ++i) mask[i] |= part.mask[i];
    if (rest <= StateTable::unknown) return;
    const StateTable::State after = table_.state_of(rest);
    for (const uint32_t node : part.returns) walk(mask, node, after, nullptr);
}

// Each place within a long repetition has its own state. Short tokens have the same effect in all of them, which is known; the
// few long tokens are tried in each.
std::vector<uint64_t> Matcher::compute_mask(StateTable::State state) {
    std::vector<uint64_t> mask((tokens_->vocab_size() + 63) / 64);
    for (const auto& [part_state, rest] : table_.parts(state)) {
        const StateTable::State canonical = table_.canonical(part_state);
        if (canonical == part_state) {
            add_part(mask, part(part_state, Tokens::all), rest);
            continue;
        }
        add_part(mask, part(canonical, Tokens::are_short), rest);
        Part others{std::vector<uint64_t>(mask.size()), {}};
        walk(others.mask, 0, part_state, &others.returns, Tokens::are_long);
        add_part(mask, others, rest);
    }
    if (table_.has_ended(state))
        for (const uint32_t id : ends_) mask[id / 64] |= uint64_t(1) << id % 64;
    return mask;
}

std::span<const uint64_t> Matcher::mask() {
    const auto known = masks_.find(state());
    if (known != masks_.end()) return known->second;
    if (masks_.size() >= max_masks) masks_.clear();
    return masks_.emplace(state(), compute_mask(state())).first->second;
}

StateTable::State Matcher::read(StateTable::State state, std::string_view bytes) {
    for (const char byte : bytes) state = table_.next(state, uint8_t(byte));
    return state;
}

bool Matcher::accept(uint32_t id) {
    if (id >= tokens_->vocab_size()) return false;
    if (tokens_->is_end(id) && can_end()) {
        history_.push_back(state());
        return true;
    }
    return !tokens_->bytes(id).empty() && accept_text(tokens_->bytes(id));
}

bool Matcher::accept_text(std::string_view bytes) {
    trim();
    const StateTable::State next = read(state(), bytes);
    if (next == StateTable::dead) return false;
    history_.push_back(next);
    return true;
}

void Matcher::rewind(size_t n) {
    ENSURE(n <= accepted() && n >= forgotten_, "to {} of {} tokens, {} forgotten", n, accepted(), forgotten_);
    history_.resize(n - forgotten_ + 1);
}

void Matcher::restart() {
    history_.assign(1, table_.start());
    forgotten_ = 0;
}

void Matcher::trim() {
    if (history_.size() > 2 * max_rewind) {
        forgotten_ += history_.size() - max_rewind - 1;
        history_.erase(history_.begin(), history_.end() - max_rewind - 1);
    }
    if (!table_.is_large()) return;
    parts_.clear();
    short_parts_.clear();
    masks_.clear();
    table_.forget(history_);
}

} // namespace tq::grammar
