// Part of PrefixCache: pages from the shared store and from another machine, and pages for another machine. Fetched pages are in
// host memory before a prompt is placed, and are then pages like all others. The names of all pages that a prompt could use
// follow from its ids (make_page_head), so nothing has to be listed: the store is asked for those that are not here, in order. It
// is asked only if it could spare min_gain tokens more than the pages here and the slot. Another machine is asked after the
// store, and only for the rest, because it has to compute that. It is not asked if slots have windows or states, which it does
// not send. A page that comes is put below its parent, which must still be there (take_over). If there is too little host memory
// for even one page, it goes straight to the pool (hold).
#include "base/ensure.h"
#include "base/error.h"
#include "model/prefix/cache.h"
#include "model/prefix/cold.h"
#include <algorithm>

namespace tq {
namespace {

constexpr uint32_t min_gain = 32; // tokens that are worth a question, as on the disk

} // namespace

void PrefixCache::note_speed(uint64_t tokens, std::chrono::nanoseconds time) {
    if (shared_) shared_->note_speed(tokens, time);
    if (remote_) remote_->note_speed(tokens, time);
}

PrefixNode* PrefixCache::known_child(PrefixNode& node, const PageName& name) {
    for (const auto& child : node.children)
        if (child->head.name == name && !is_lost(*child)) return child.get();
    return nullptr;
}

std::shared_ptr<PromptFetch> PrefixCache::fetch(std::span<const uint32_t> ids, uint32_t own, std::string_view tenant,
                                                bool asks_machine, std::span<const uint32_t> marks) {
    const bool has_beside = cache().shape().has_beside();
    if ((!shared_ && (!remote_ || has_beside)) || ids.empty()) return nullptr;
    const uint32_t requested = usable(uint32_t(ids.size()), ids.size(), true);
    const PrefixTree::Found found = tree_.find(tree_.root(tenant), ids.first(ids.size() - 1), true,
                                               [&](PrefixNode& node, std::span<const uint32_t> rest) { expand(node, rest); });
    const uint32_t here = has_beside ? nearest_state(found, ids.size()) : found.tokens;
    if (requested < std::max(own, usable(here, ids.size(), true)) + min_gain) return nullptr;
    PrefixNode* node = &tree_.root(tenant);
    const PageName owner = node->head.owner;
    std::vector<PageHead> pages;
    uint32_t known = 0;
    for (uint32_t at = 0; at < requested && at + page_tokens <= ids.size(); at += page_tokens) {
        const PageName parent = pages.empty() ? node->head.name : pages.back().name;
        pages.push_back(make_page_head(owner, parent, ids.subspan(at, page_tokens), page_tokens));
        if (node) node = known_child(*node, pages.back().name);
        known += node ? 1 : 0;
    }
    if (pages.size() * page_tokens < std::max(own, here) + min_gain) return nullptr;
    PromptFetch fetch{.tokens = uint32_t(ids.size()),
                      .own = std::max(own, here),
                      .asks_machine = asks_machine && remote_ && !has_beside,
                      .store = {},
                      .machine = {}};
    if (has_beside) {
        fetch.pages = std::move(pages);
        fetch.states = ask_for_state(fetch, std::string(tenant), marks);
    } else {
        if (shared_) fetch.store = shared_->fetch(std::string(tenant), pages, known);
        if (!fetch.store) fetch.machine = ask_machine(fetch, std::string(tenant), std::move(pages), known);
    }
    return fetch.states || fetch.store || fetch.machine ? std::make_shared<PromptFetch>(std::move(fetch)) : nullptr;
}

std::shared_ptr<PageFetch> PrefixCache::ask_machine(const PromptFetch& fetch, std::string tenant, std::vector<PageHead> pages,
                                                    uint32_t known) {
    if (!fetch.asks_machine || fetch.tokens <= std::max(fetch.own, known * page_tokens) + page_tokens) return nullptr;
    return remote_->fetch(std::move(tenant), std::move(pages), known);
}

// Keeps a page in host memory, or on the device if there is too little host memory for one.
bool PrefixCache::hold(PrefixNode& node, std::vector<std::byte> content, FetchedFrom from) {
    const uint64_t bytes = content.size();
    if (bytes > max_memory_bytes_) {
        const auto page = cache().take_page();
        if (!page) return false;
        cache().write_page(*page, node.head.tokens(), content);
        node.device = *page;
    } else if (make_memory(bytes, false, &node)) {
        node.bytes = std::make_shared<std::vector<std::byte>>(std::move(content));
        memory_bytes_ += bytes;
    } else {
        return false;
    }
    node.fetched = from;
    return true;
}

// Puts the page before fetch.next into the tree. Returns false if a page before it is gone, or there is no room.
bool PrefixCache::take_over(PageFetch& fetch, std::vector<std::byte> content, FetchedFrom from) {
    PrefixNode* node = &tree_.root(fetch.tenant);
    for (uint32_t i = 0; i + 1 < fetch.next; i++)
        if (!(node = known_child(*node, fetch.pages[i].name))) return false;
    const PageHead& head = fetch.pages[fetch.next - 1];
    const auto there = std::ranges::find_if(node->children, [&](const auto& child) { return child->head.name == head.name; });
    const bool is_new = there == node->children.end();
    PrefixNode& child = is_new ? tree_.add(*node, head) : **there;
    if (!is_new && !is_lost(child)) return true; // it was run in the meantime
    tree_.touch(child);
    if (hold(child, std::move(content), from)) return true;
    if (is_new) node->children.pop_back();
    return false;
}

bool PrefixCache::is_coming(PromptFetch& fetch, std::chrono::milliseconds wait) {
    const auto more = [&](FetchedPages& source, PageFetch& pages, FetchedFrom from) {
        while (auto content = source.take(pages, wait)) {
            if (!take_over(pages, std::move(*content), from)) {
                fetch.asks_machine = false;
                return false;
            }
            wait = std::chrono::milliseconds(0);
        }
        return source.is_coming(pages);
    };
    if (fetch.states) {
        if (const auto content = shared_->take(*fetch.states, wait)) {
            wait = std::chrono::milliseconds(0);
            take_over_state(fetch, *content);
        } else if (!shared_->is_coming(*fetch.states)) {
            fetch.states.reset();
        }
        if (fetch.states) return true;
    }
    if (fetch.store) {
        if (more(*shared_, *fetch.store, FetchedFrom::store)) return true;
        const auto store = std::exchange(fetch.store, nullptr);
        if (fetch.state)
            keep_fetched_state(fetch, store->tenant);
        else
            fetch.machine = ask_machine(fetch, store->tenant, store->pages, store->next);
    }
    if (fetch.machine && !more(*remote_, *fetch.machine, FetchedFrom::machine)) fetch.machine.reset();
    return fetch.machine != nullptr;
}

void PrefixCache::count_fetched(PrefixNode& node) {
    const FetchedFrom from = std::exchange(node.fetched, FetchedFrom::nowhere);
    (from == FetchedFrom::store ? found_.shared_tokens : found_.remote_tokens) += node.head.tokens();
}

std::optional<std::vector<std::byte>> PrefixCache::content_of(const PrefixNode& node) {
    std::vector<std::byte> content(layout_.bytes(node.head.tokens()));
    if (node.device) {
        cache().read_page(*node.device, node.head.tokens(), content);
        return content;
    }
    return node.bytes ? std::optional(*node.bytes) : store_ ? store_->read(node.head) : std::nullopt;
}

std::optional<std::vector<std::byte>> PrefixCache::content(std::span<const uint32_t> ids, std::string_view tenant) {
    ENSURE(!ids.empty() && ids.size() % page_tokens == 0, "{} ids are no whole pages", ids.size());
    PrefixNode* node = &tree_.root(tenant);
    const PageName owner = node->head.owner;
    for (; !ids.empty(); ids = ids.subspan(page_tokens)) {
        expand(*node, ids);
        const PageName name = make_page_head(owner, node->head.name, ids.first(page_tokens), page_tokens).name;
        const auto next = std::ranges::find_if(node->children, [&](const auto& child) { return child->head.name == name; });
        if (next == node->children.end()) return std::nullopt;
        node = next->get();
    }
    return content_of(*node);
}

} // namespace tq
