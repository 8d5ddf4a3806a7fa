// The prefix cache's index: a tree whose nodes are pages, each with the ids of its tokens. A prompt is looked up from the root,
// page by page. The last page of a sequence may have fewer tokens than a page holds, and has no children.
// A page may be there twice, cold and sampled, with different bits (cold.cpp). No cold page follows a sampled one, since its
// tokens attend to those before.
// Each tenant has a root of its own with another name, so that pages of one are never found by another.
#include "model/prefix/tree.h"
#include "base/ensure.h"
#include "base/error.h"
#include <algorithm>

namespace tq {
namespace {

uint32_t common_ids(std::span<const uint32_t> a, std::span<const uint32_t> b) {
    return uint32_t(std::ranges::mismatch(a, b).in1 - a.begin());
}

bool is_cold(const PageHead& head) { return head.cold == head.tokens(); }

// State of a search: `tokens` were found up to `node`.
struct Place {
    PrefixNode* node;
    uint32_t tokens;
};

} // namespace

bool PrefixNode::is_full() const { return head.tokens() == page_tokens; }

PrefixNode::State* PrefixNode::state_at(uint32_t tokens) {
    const auto found = std::ranges::find(states, tokens, [](const State& state) { return state.saved->tokens; });
    return found == states.end() ? nullptr : &*found;
}

PrefixTree::PrefixTree(PageName owner) : owner_(owner) {}

PrefixNode& PrefixTree::root(std::string_view tenant) {
    const auto found = roots_.find(tenant);
    if (found != roots_.end()) return found->second;
    PrefixNode& root = roots_[std::string(tenant)];
    root.head.owner = owner_;
    root.head.name = tenant.empty() ? owner_ : name_of_owner(fmt::format("{} tenant {}", owner_.hex(), tenant));
    root.head.cold = page_tokens;
    return root;
}

// A full page may be there twice, cold and sampled, with other pages after each: all ways are followed. There are few, since no
// cold page follows a sampled one.
PrefixTree::Found PrefixTree::find(PrefixNode& root, std::span<const uint32_t> ids, bool exact, const Expand& expand) {
    Place best{&root, 0};
    bool best_sampled = false;
    std::vector<Place> open{{&root, 0}};
    while (!open.empty()) {
        const Place at = open.back();
        open.pop_back();
        const auto rest = ids.subspan(at.tokens);
        if (rest.empty()) continue;
        if (expand) expand(*at.node, rest);
        for (const auto& child : at.node->children) {
            const uint32_t common = common_ids(child->head.ids, rest), n = exact ? std::min(common, child->head.cold) : common;
            const bool sampled = !is_cold(child->head);
            if (n == 0) continue;
            if (at.tokens + n > best.tokens || (!exact && at.tokens + n == best.tokens && sampled && !best_sampled)) {
                best = {child.get(), at.tokens + n};
                best_sampled = sampled;
            }
            if (n == page_tokens) open.push_back({child.get(), at.tokens + n});
        }
    }
    Found found{{}, best.tokens};
    for (PrefixNode* node = best.node; node->parent; node = node->parent) found.pages.push_back(node);
    std::ranges::reverse(found.pages);
    return found;
}

PrefixNode& PrefixTree::insert(PrefixNode& parent, std::span<const uint32_t> ids, uint32_t cold) {
    ENSURE(!parent.parent || parent.is_full(), "a page after one of {} tokens", parent.head.tokens());
    if (parent.head.cold < page_tokens) cold = 0; // what follows a sampled token attends to it
    for (const auto& child : parent.children)
        if (common_ids(child->head.ids, ids) == ids.size() &&
            (child->head.tokens() > ids.size() ? child->head.cold >= cold : is_cold(child->head) == (cold == ids.size())))
            return *child;
    PrefixNode& child = add(parent, make_page_head(owner_, parent.head.name, ids, cold));
    touch(child);
    return child;
}

PrefixNode* PrefixTree::known(PrefixNode& parent, std::span<const uint32_t> ids, uint32_t cold) const {
    const bool all_cold = parent.head.cold == page_tokens && cold == ids.size();
    for (const auto& child : parent.children)
        if (std::ranges::equal(child->head.ids, ids) && is_cold(child->head) == all_cold) return child.get();
    return nullptr;
}

// Shorter pages that the node begins with, and that are no colder, hold nothing that the node does not.
std::vector<std::unique_ptr<PrefixNode>> PrefixTree::take_superseded(PrefixNode& node) {
    std::vector<std::unique_ptr<PrefixNode>> out;
    auto& siblings = node.parent->children;
    for (size_t i = 0; i < siblings.size();) {
        const PageHead& other = siblings[i]->head;
        if (other.tokens() < node.head.tokens() && other.cold <= node.head.cold &&
            common_ids(other.ids, node.head.ids) == other.tokens()) {
            out.push_back(std::move(siblings[i]));
            siblings.erase(siblings.begin() + ptrdiff_t(i));
        } else {
            i++;
        }
    }
    return out;
}

void PrefixTree::drop_if(const std::function<bool(const PrefixNode&)>& is_lost) {
    std::vector<PrefixNode*> leaves;
    each([&](PrefixNode& node) {
        if (node.children.empty()) leaves.push_back(&node);
    });
    for (PrefixNode* leaf : leaves)
        for (PrefixNode* at = leaf; at->parent && at->children.empty() && is_lost(*at);) {
            PrefixNode& parent = *at->parent;
            std::erase_if(parent.children, [&](const auto& child) { return child.get() == at; });
            at = &parent;
        }
}

PrefixNode& PrefixTree::add(PrefixNode& parent, PageHead head) {
    auto& child = parent.children.emplace_back(std::make_unique<PrefixNode>());
    child->parent = &parent;
    child->head = std::move(head);
    return *child;
}

void PrefixTree::touch(PrefixNode& node) {
    now_++;
    for (PrefixNode* at = &node; at; at = at->parent) at->used = now_;
}

// touch() gives a node and all above it the same time, and parents come first here: of equal times the deepest wins, so a leaf is
// found before its parents.
PrefixNode* PrefixTree::least_recent(const std::function<bool(const PrefixNode&)>& is_candidate) {
    PrefixNode* oldest = nullptr;
    each([&](PrefixNode& node) { // parents come before their children
        if (is_candidate(node) && (!oldest || node.used <= oldest->used)) oldest = &node;
    });
    return oldest;
}

void PrefixTree::each(const std::function<void(PrefixNode&)>& use) {
    std::vector<PrefixNode*> open;
    for (auto& [tenant, root] : roots_) open.push_back(&root);
    while (!open.empty()) {
        PrefixNode* node = open.back();
        open.pop_back();
        if (node->parent) use(*node);
        for (const auto& child : node->children) open.push_back(child.get());
    }
}

} // namespace tq
