// Of PrefixCache: what slots have beside their pages. A state is that after the last token of a page, and has a life of its own:
// its page may be on the device while it is on the disk, and it goes before its page.
#include "base/error.h"
#include "model/prefix/cache.h"
#include <algorithm>

namespace tq {
namespace {

// Returns the tokens up to the end of page i of those found.
uint32_t end_of(const PrefixTree::Found& found, size_t i) { return uint32_t(i) * page_tokens + found.pages[i]->head.tokens(); }

constexpr uint32_t last_ends = 4, end_distance = 2048; // of the pages after which the store is asked for a state

} // namespace

// Where slots have nothing beside their pages, any token will do; else the nearest earlier state.
PrefixCache::Usable PrefixCache::usable(const PrefixTree::Found& found, uint32_t most, uint32_t own, size_t total, bool exact) {
    if (!cache().shape().has_beside()) return {usable(most, total, exact)};
    for (size_t i = found.pages.size(); i-- > 0;) {
        const uint32_t end = end_of(found, i);
        if (end > most || usable(end, total, exact) != end) continue;
        if (end <= own) break;
        if (auto state = load_state(*found.pages[i], end)) return {end, std::move(state)};
    }
    return {};
}

std::shared_ptr<const SavedSlot> PrefixCache::load_state(PrefixNode& node, uint32_t tokens) {
    const PageHead head = make_state_head(node.head);
    if (!node.state) {
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
    found_.memory_states_found++;
    node.state_used = tree_.next_time();
    return node.state;
}

// In host memory, where there is room for it.
void PrefixCache::keep_state(PrefixNode& node, std::shared_ptr<const SavedSlot> state) {
    node.state_used = tree_.next_time();
    if (node.state || !make_memory(state->bytes())) return;
    memory_bytes_ += state->bytes();
    node.state = std::move(state);
}

void PrefixCache::drop_state(PrefixNode& node) {
    if (!node.state) return;
    memory_bytes_ -= node.state->bytes();
    node.state.reset();
}

void PrefixCache::forget_state(PrefixNode& node) {
    drop_state(node);
    if (store_) store_->remove(make_state_head(node.head));
}

uint32_t PrefixCache::known_tokens(std::span<const uint32_t> ids, std::string_view tenant) {
    return tree_
        .find(tree_.root(tenant), ids, true, [&](PrefixNode& node, std::span<const uint32_t> rest) { expand(node, rest); })
        .tokens;
}

// Returns the known pages of these ids, in order, the first `cold` of which have the bits of a cold run.
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
    std::vector<uint32_t> ends;
    const auto is_stored = [&](const PrefixNode& node) { return store_ && store_->has(make_state_head(node.head)); };
    for (size_t i = 0, kept = 0; i < nodes.size(); i++) {
        const uint32_t tokens = uint32_t(i) * page_tokens + nodes[i]->head.tokens();
        if (!nodes[i]->state && !cache().checkpoint_at(slot, tokens) && !is_stored(*nodes[i])) continue;
        nodes[kept++] = nodes[i];
        ends.push_back(tokens);
    }
    nodes.resize(ends.size());
    for (const size_t i : superfluous_checkpoints(ends))
        if (nodes[i]->children.size() < 2) {
            forget_state(*nodes[i]);
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

uint32_t PrefixCache::nearest_state(const PrefixTree::Found& found, size_t total) {
    for (size_t i = found.pages.size(); i-- > 0;) {
        const uint32_t end = end_of(found, i);
        const PrefixNode& node = *found.pages[i];
        if (end <= found.tokens && usable(end, total, true) == end &&
            (node.state || (store_ && store_->has(make_state_head(node.head)))))
            return end;
    }
    return 0;
}

// From the last end on: one is enough.
std::shared_ptr<PageFetch> PrefixCache::ask_for_state(const PromptFetch& fetch, std::string tenant,
                                                      std::span<const uint32_t> marks) {
    if (state_layout_.max_bytes() > max_memory_bytes_) return nullptr; // it could not be kept until the slot has it
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
    } catch (const Error&) { // signed or not, it is none of this cache
        return;
    }
    uint32_t known = 0;
    for (PrefixNode* node = &tree_.root(states->tenant); known < fetch.pages.size(); known++)
        if (!(node = known_child(*node, fetch.pages[known].name))) break;
    fetch.store = shared_->fetch(states->tenant, fetch.pages, known);
    if (!fetch.store) keep_fetched_state(fetch, states->tenant);
}

// Where all its pages are here.
void PrefixCache::keep_fetched_state(PromptFetch& fetch, std::string_view tenant) {
    PrefixNode* node = &tree_.root(tenant);
    for (const PageHead& page : fetch.pages)
        if (!(node = known_child(*node, page.name))) return;
    keep_state(*node, std::exchange(fetch.state, nullptr));
    found_.shared_states_found++;
}

} // namespace tq
