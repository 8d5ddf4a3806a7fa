// Part of PrefixCache: states. A state is a slot's window and recurrent states after one token. If slots have them, pages alone
// do not help: a prompt can go on only from a token with a state, so pages after the last state are not used (usable). A state
// has a life of its own. Its page may be on the device while it is on the disk, and it goes before its page.
// - In host memory, at any token, with the page that the token is in: at most max_states_of_page per page.
// - On the disk and in the shared store only at ends of pages: the record has a name of its own, which follows from the page's
//   (make_state_head), so no list of states is needed. A long prompt leaves many states; store_states() thins them out as a
//   slot's own checkpoints are (superfluous_checkpoints). It keeps the state of a page that several pages follow, because other
//   prompts branch off there. The shared store is asked for states first, from the last end on, and for pages when a state has
//   come: only the pages before it are worth fetching (take_over_state).
#include "base/error.h"
#include "model/prefix/cache.h"
#include <algorithm>

namespace tq {
namespace {

// Returns the number of tokens up to the end of the i-th found page.
uint32_t end_of(const PrefixTree::Found& found, size_t i) { return uint32_t(i) * page_tokens + found.pages[i]->head.tokens(); }

constexpr size_t max_states_of_page = 4;               // its end, ends of messages, and places where prompts branch off
constexpr uint32_t last_ends = 4, end_distance = 2048; // of the pages after which the store is asked for a state

} // namespace

// The lengths for which there is a state in this page, the greatest first. end: that of the page's last token.
std::vector<uint32_t> PrefixCache::state_lengths(PrefixNode& node, uint32_t end) {
    std::vector<uint32_t> lengths;
    for (const PrefixNode::State& state : node.states) lengths.push_back(state.saved->tokens);
    if (!node.state_at(end) && store_ && store_->has(make_state_head(node.head))) lengths.push_back(end);
    std::ranges::sort(lengths, std::greater());
    return lengths;
}

// Calls use(page, length) for each length of at most `max` at which there is a state and a prompt of `total` tokens can go on,
// the greatest first, until it returns true.
template <class Use>
void PrefixCache::each_state(const PrefixTree::Found& found, uint32_t max, size_t total, bool exact, const Use& use) {
    for (size_t i = found.pages.size(); i-- > 0;)
        for (const uint32_t length : state_lengths(*found.pages[i], end_of(found, i)))
            if (length <= max && usable(length, total, exact) == length && use(i, length)) return;
}

// If slots have only pages, any token will do; else the nearest earlier state.
PrefixCache::Usable PrefixCache::usable(const PrefixTree::Found& found, uint32_t max, uint32_t own, size_t total, bool exact) {
    if (!cache().shape().has_beside()) return {usable(max, total, exact)};
    Usable out;
    each_state(found, max, total, exact, [&](size_t page, uint32_t length) {
        if (length > own)
            if (auto state = load_state(*found.pages[page], length)) out = {length, std::move(state)};
        return length <= own || out.state;
    });
    return out;
}

std::shared_ptr<const SavedSlot> PrefixCache::load_state(PrefixNode& node, uint32_t tokens) {
    if (PrefixNode::State* state = node.state_at(tokens)) {
        found_.memory_states_found++;
        state->used = tree_.next_time();
        return state->saved;
    }
    const PageHead head = make_state_head(node.head);
    const auto content = store_ && store_->has(head) ? store_->read(head) : std::nullopt;
    if (!content) return nullptr;
    try {
        auto state = std::make_shared<SavedSlot>(read_state(*content, tokens, state_layout_));
        keep_state(node, state);
        found_.disk_states_found++;
        return state;
    } catch (const Error& error) {
        store_->report_damaged(head, error.what());
        return nullptr;
    }
}

// Keeps a state in host memory, if there is room. For two states per slot there always is room, since without them the pages on
// the device would be of no use.
void PrefixCache::keep_state(PrefixNode& node, std::shared_ptr<const SavedSlot> state) {
    if (PrefixNode::State* known = node.state_at(state->tokens)) {
        known->used = tree_.next_time();
        return;
    }
    if (!make_memory(state->bytes(), true)) return;
    memory_bytes_ += state->bytes();
    node.states.push_back({std::move(state), tree_.next_time()});
    drop_oldest_states(node);
}

void PrefixCache::drop_oldest_states(PrefixNode& node) {
    while (node.states.size() > max_states_of_page)
        drop_state(node, std::ranges::min_element(node.states, {}, &PrefixNode::State::used)->saved->tokens);
}

void PrefixCache::drop_state(PrefixNode& node, uint32_t tokens) {
    const PrefixNode::State* state = node.state_at(tokens);
    if (!state) return;
    memory_bytes_ -= state->saved->bytes();
    node.states.erase(node.states.begin() + (state - node.states.data()));
}

void PrefixCache::drop_states(PrefixNode& node) {
    while (!node.states.empty()) drop_state(node, node.states.back().saved->tokens);
}

// Takes over the states after cold tokens of a page that `to` replaces; the tokens of `to` begin with that page's.
void PrefixCache::take_over_states(PrefixNode& from, PrefixNode& to) {
    for (PrefixNode::State& state : from.states) {
        const uint32_t tokens = state.saved->tokens;
        if ((tokens - 1) % page_tokens + 1 <= from.head.cold && !to.state_at(tokens))
            to.states.push_back(std::move(state));
        else
            memory_bytes_ -= state.saved->bytes();
    }
    from.states.clear();
    drop_oldest_states(to);
}

// Forgets the state at the page's end, in memory and on the disk.
void PrefixCache::forget_state(PrefixNode& node, uint32_t tokens) {
    drop_state(node, tokens);
    if (store_) store_->remove(make_state_head(node.head));
}

uint32_t PrefixCache::known_tokens(std::span<const uint32_t> ids, std::string_view tenant) {
    return tree_
        .find(tree_.root(tenant), ids, true, [&](PrefixNode& node, std::span<const uint32_t> rest) { expand(node, rest); })
        .tokens;
}

// Returns the known pages of these ids, in order. The first `cold` ids have the bits of a cold run.
std::vector<PrefixNode*> PrefixCache::known_pages(std::span<const uint32_t> ids, uint32_t cold, std::string_view tenant) {
    std::vector<PrefixNode*> nodes;
    PrefixNode* node = &tree_.root(tenant);
    for (uint32_t at = 0, count; at < ids.size() && node; at += count) {
        count = std::min(page_tokens, uint32_t(ids.size()) - at);
        node = tree_.known(*node, ids.subspan(at, count), cold > at ? std::min(cold - at, count) : 0);
        if (node) nodes.push_back(node);
    }
    return nodes;
}

void PrefixCache::store_states(uint32_t slot, std::span<const uint32_t> ids, uint32_t cold, bool end, std::string_view tenant) {
    if (!cache().shape().has_beside()) return;
    std::vector<PrefixNode*> nodes = known_pages(ids, still_cold(cold), tenant);
    keep_inner_states(slot, ids, nodes, still_cold(cold), tenant);
    std::vector<uint32_t> ends;
    const auto is_stored = [&](const PrefixNode& node) { return store_ && store_->has(make_state_head(node.head)); };
    for (size_t i = 0, kept = 0; i < nodes.size(); i++) {
        const uint32_t tokens = uint32_t(i) * page_tokens + nodes[i]->head.tokens();
        if (!nodes[i]->state_at(tokens) && !cache().checkpoint_at(slot, tokens) && !is_stored(*nodes[i])) continue;
        nodes[kept++] = nodes[i];
        ends.push_back(tokens);
    }
    nodes.resize(ends.size());
    for (const size_t i : superfluous_checkpoints(ends))
        if (nodes[i]->children.size() < 2) {
            forget_state(*nodes[i], ends[i]);
            ends[i] = 0;
        }
    for (size_t i = 0; i < nodes.size(); i++) {
        const auto state = ends[i] > 0 ? cache().checkpoint_at(slot, ends[i]) : nullptr;
        if (!state) continue;
        const PageHead head = make_state_head(nodes[i]->head);
        if (shared_ && shared_->wants(head, end)) shared_->write(head, state_content(*state));
        if (store_ && !store_->has(head)) store_->write(head, state_content(*state), end);
        keep_state(*nodes[i], state);
    }
}

// They are kept in all pages that begin with these ids, since a prompt that goes on otherwise finds any of them, and thinned out
// as the slot's own checkpoints are.
void PrefixCache::keep_inner_states(uint32_t slot, std::span<const uint32_t> ids, std::span<PrefixNode* const> pages,
                                    uint32_t cold, std::string_view tenant) {
    for (const uint32_t length : cache().checkpoints(slot)) {
        const uint32_t page = length / page_tokens, within = length % page_tokens;
        if (within == 0 || length > std::min(cold, uint32_t(ids.size())) || page > pages.size()) continue;
        const auto begin = ids.subspan(length - within, within);
        for (const auto& child : (page == 0 ? tree_.root(tenant) : *pages[page - 1]).children)
            if (child->head.cold >= within && std::ranges::equal(begin, std::span(child->head.ids).first(within)))
                keep_state(*child, cache().checkpoint_at(slot, length));
    }
    std::vector<uint32_t> lengths;
    for (PrefixNode* page : pages)
        for (const PrefixNode::State& state : page->states)
            if (state.saved->tokens % page_tokens != 0) lengths.push_back(state.saved->tokens);
    std::ranges::sort(lengths);
    for (const size_t i : superfluous_checkpoints(lengths)) {
        drop_state(*pages[lengths[i] / page_tokens], lengths[i]);
        lengths.erase(lengths.begin() + ptrdiff_t(i));
    }
}

uint32_t PrefixCache::nearest_state(const PrefixTree::Found& found, size_t total) {
    uint32_t nearest = 0;
    each_state(found, found.tokens, total, true, [&](size_t, uint32_t length) {
        nearest = length;
        return true;
    });
    return nearest;
}

// From the last end on: one is enough.
std::shared_ptr<PageFetch> PrefixCache::ask_for_state(const PromptFetch& fetch, std::string tenant,
                                                      std::span<const uint32_t> marks) {
    std::vector<PageHead> states;
    for (size_t i = fetch.pages.size(); i-- > 0;) {
        const uint32_t end = uint32_t(i + 1) * page_tokens;
        if (end < fetch.own + page_tokens || usable(end, fetch.tokens, true) != end) continue;
        const auto is_before = [&](uint32_t mark) { return mark / page_tokens == i + 1; };
        if (states.size() < last_ends || end % end_distance == 0 || std::ranges::any_of(marks, is_before))
            states.push_back(make_state_head(fetch.pages[i]));
    }
    return shared_->fetch_state(std::move(tenant), std::move(states), fetch.tokens - fetch.own);
}

// Then come the pages before it that are nowhere here.
void PrefixCache::take_over_state(PromptFetch& fetch, std::span<const std::byte> content) {
    const auto states = std::exchange(fetch.states, nullptr);
    const PageName name = states->pages[states->next - 1].parent;
    const auto page = std::ranges::find(fetch.pages, name, &PageHead::name);
    fetch.pages.erase(page + 1, fetch.pages.end());
    const auto tokens = uint32_t(fetch.pages.size()) * page_tokens;
    try {
        fetch.state = std::make_shared<SavedSlot>(read_state(content, tokens, state_layout_));
    } catch (const Error&) { // signed or not, it is no state of this cache
        return;
    }
    uint32_t known = 0;
    for (PrefixNode* node = &tree_.root(states->tenant); known < fetch.pages.size(); known++)
        if (!(node = known_child(*node, fetch.pages[known].name))) break;
    fetch.store = shared_->fetch(states->tenant, fetch.pages, known);
    if (!fetch.store) keep_fetched_state(fetch, states->tenant);
}

// Keeps a fetched state if all its pages are here.
void PrefixCache::keep_fetched_state(PromptFetch& fetch, std::string_view tenant) {
    PrefixNode* node = &tree_.root(tenant);
    for (const PageHead& page : fetch.pages)
        if (!(node = known_child(*node, page.name))) return;
    keep_state(*node, std::exchange(fetch.state, nullptr));
    found_.shared_states_found++;
}

} // namespace tq
