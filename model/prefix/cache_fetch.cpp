// Of PrefixCache: pages of the shared store. They are fetched into host memory before a prompt is placed, and are then pages like
// all others.
#include "base/error.h"
#include "model/prefix/cache.h"
#include "model/prefix/cold.h"
#include <algorithm>

namespace tq {
namespace {

constexpr uint32_t least_gain = 32; // tokens that are worth a question, as on the disk

} // namespace

void PrefixCache::note_speed(uint64_t tokens, std::chrono::nanoseconds time) {
    if (shared_) shared_->note_speed(tokens, time);
}

PrefixNode* PrefixCache::known_child(PrefixNode& node, const PageName& name) {
    for (const auto& child : node.children)
        if (child->head.name == name && !is_lost(*child)) return child.get();
    return nullptr;
}

std::shared_ptr<PageFetch> PrefixCache::fetch(std::span<const uint32_t> ids, uint32_t own, std::string_view tenant) {
    if (!shared_ || ids.empty()) return nullptr;
    const uint32_t wanted = usable(uint32_t(ids.size()), ids.size(), true);
    const PrefixTree::Found found = tree_.find(tree_.root(tenant), ids.first(ids.size() - 1), true,
                                               [&](PrefixNode& node, std::span<const uint32_t> rest) { expand(node, rest); });
    if (wanted < std::max(own, usable(found.tokens, ids.size(), true)) + least_gain) return nullptr;
    PrefixNode* node = &tree_.root(tenant);
    const PageName owner = node->head.owner;
    std::vector<PageHead> pages;
    uint32_t known = 0;
    for (uint32_t at = 0; at < wanted && at + page_tokens <= ids.size(); at += page_tokens) {
        const PageName parent = pages.empty() ? node->head.name : pages.back().name;
        pages.push_back(make_page_head(owner, parent, ids.subspan(at, page_tokens), page_tokens));
        if (node) node = known_child(*node, pages.back().name);
        known += node ? 1 : 0;
    }
    if (pages.size() * page_tokens < std::max(own, found.tokens) + least_gain) return nullptr;
    return shared_->fetch(std::string(tenant), std::move(pages), known);
}

// Keeps a page in host memory, or where there is too little for one, on the device.
bool PrefixCache::hold(PrefixNode& node, std::vector<std::byte> content) {
    const uint64_t bytes = content.size();
    if (bytes > max_memory_bytes_) {
        const auto page = cache().take_page();
        if (!page) return false;
        cache().write_page(*page, node.head.tokens(), content);
        node.device = *page;
    } else if (make_memory(bytes, &node)) {
        node.bytes = std::make_shared<std::vector<std::byte>>(std::move(content));
        memory_bytes_ += bytes;
    } else {
        return false;
    }
    node.is_fetched = true;
    return true;
}

// Puts the page before fetch.next into the tree. Returns false where a page before it is gone, or there is no room.
bool PrefixCache::take_over(PageFetch& fetch, std::vector<std::byte> content) {
    PrefixNode* node = &tree_.root(fetch.tenant);
    for (uint32_t i = 0; i + 1 < fetch.next; i++)
        if (!(node = known_child(*node, fetch.pages[i].name))) return false;
    const PageHead& head = fetch.pages[fetch.next - 1];
    const auto there = std::ranges::find_if(node->children, [&](const auto& child) { return child->head.name == head.name; });
    const bool is_new = there == node->children.end();
    PrefixNode& child = is_new ? tree_.add(*node, head) : **there;
    if (!is_new && !is_lost(child)) return true; // it was run in the meantime
    tree_.touch(child);
    if (hold(child, std::move(content))) return true;
    if (is_new) node->children.pop_back();
    return false;
}

bool PrefixCache::is_coming(PageFetch& fetch, std::chrono::milliseconds wait) {
    if (!shared_) return false;
    while (auto content = shared_->take(fetch, wait)) {
        if (!take_over(fetch, std::move(*content))) return false;
        wait = std::chrono::milliseconds(0);
    }
    return shared_->is_coming(fetch);
}

} // namespace tq
