// One tree knows all pages; a node says where its content is: in a page of the device's pool, in host memory, or, if its name
// is in the store, on the disk. A node whose content is nowhere is lost, and goes when no page follows it any more
// (drop_lost).
// The cache is the keeper of the pool. It retains the page of each node once; a page that nobody else retains is spare, and is
// the first to go when slots need pages (give_up): it moves to host memory if there is room, else it is released. So the pool
// is always full of use, and a slot never fails for what only the cache has.
// take() retains each page before it asks for the next, because to load one from host memory or the disk takes a page of the
// pool, which may make the cache give up others, of this very prompt. If one cannot be loaded, the found prefix ends there, at
// the last state before it if slots have states (usable).
// Pages that were computed otherwise than when the cache was made are not cold (still_cold): the model may have been placed
// anew.
#include "model/prefix/cache.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/prefix/cold.h"
#include <algorithm>

namespace tq {

PrefixCache::PrefixCache(Forward& forward, const OwnerTexts& owner, const Options& options)
    : forward_(forward), computation_(forward.computation()), layout_(cache().page_layout()), state_layout_(cache()),
      max_memory_bytes_(options.memory_bytes), min_state_bytes_(2 * cache().shape().slots * state_layout_.max_bytes()),
      tree_(owner_name(owner)) {
    if (!options.disk.directory.empty() && options.disk.max_bytes > 0)
        store_.emplace(options.disk, owner, layout_, state_layout_.max_bytes());
    if (options.shared.open) shared_.emplace(options.shared, layout_, state_layout_.max_bytes());
    if (options.remote.compute) remote_.emplace(options.remote, layout_);
    cache().set_keeper(this);
}

PrefixCache::~PrefixCache() {
    cache().set_keeper(nullptr);
    tree_.each([&](PrefixNode& node) { release(node); });
}

bool PrefixCache::is_spare(const PrefixNode& node) const { return node.device && cache().references(*node.device) == 1; }

bool PrefixCache::is_lost(const PrefixNode& node) { return !node.device && !node.bytes && !(store_ && store_->has(node.head)); }

void PrefixCache::drop_lost() {
    if (!std::exchange(released_, false)) return;
    tree_.each([&](PrefixNode& node) {
        if (!node.states.empty() && is_lost(node)) drop_states(node);
    });
    tree_.drop_if([&](const PrefixNode& node) { return is_lost(node); });
}

uint32_t PrefixCache::spare_pages() const {
    uint32_t count = 0;
    tree_.each([&](PrefixNode& node) { count += is_spare(node) ? 1 : 0; });
    return count;
}

void PrefixCache::release(PrefixNode& node) {
    if (!node.device) return;
    cache().release(*std::exchange(node.device, std::nullopt));
    released_ = true;
}

void PrefixCache::give_up(uint32_t pages) {
    for (; pages > 0; pages--) {
        PrefixNode* node = tree_.least_recent([&](const PrefixNode& n) { return is_spare(n); });
        if (!node) return;
        keep_in_memory(*node);
        release(*node);
    }
}

void PrefixCache::give_up_page(uint32_t page) {
    tree_.each([&](PrefixNode& node) {
        if (node.device == page) release(node);
    });
}

void PrefixCache::drop_bytes(PrefixNode& node) {
    memory_bytes_ -= node.bytes->size();
    node.bytes.reset();
    node.fetched = FetchedFrom::nowhere;
    released_ = true;
}

// Makes room for a page or a state in host memory: the least recently used pages and states go. A page never displaces states
// that are within the room that states have in any case. Returns false if the room does not suffice, or if `kept` would have to
// go.
bool PrefixCache::make_memory(uint64_t bytes, bool for_state, const PrefixNode* kept) {
    const uint64_t limit = for_state ? std::max(max_memory_bytes_, min_state_bytes_) : max_memory_bytes_;
    if (bytes > limit) return false;
    while (memory_bytes_ + bytes > limit) {
        PrefixNode* oldest = tree_.least_recent([](const PrefixNode& n) { return n.bytes != nullptr; });
        std::pair<PrefixNode*, const PrefixNode::State*> state{};
        uint64_t state_bytes = 0;
        tree_.each([&](PrefixNode& n) {
            for (const PrefixNode::State& each : n.states) {
                state_bytes += each.saved->bytes();
                if (!state.second || each.used < state.second->used) state = {&n, &each};
            }
        });
        if (!for_state && state_bytes <= min_state_bytes_) state = {};
        if (state.second && (!oldest || state.second->used < oldest->used)) {
            drop_state(*state.first, state.second->saved->tokens);
            continue;
        }
        if (!oldest || (kept && oldest->used >= kept->used)) return false;
        drop_bytes(*oldest);
    }
    return true;
}

// Copies a page to host memory.
void PrefixCache::keep_in_memory(PrefixNode& node) {
    const uint64_t bytes = layout_.bytes(node.head.tokens());
    if (node.bytes || !make_memory(bytes, false)) return;
    auto copy = std::make_shared<std::vector<std::byte>>(bytes);
    cache().read_page(*node.device, node.head.tokens(), *copy);
    node.bytes = std::move(copy);
    memory_bytes_ += bytes;
}

void PrefixCache::forget(PrefixNode& node) {
    release(node);
    drop_states(node);
    if (store_) store_->remove(make_state_head(node.head));
    if (node.bytes) memory_bytes_ -= node.bytes->size();
    if (store_) store_->remove(node.head);
}

void PrefixCache::expand(PrefixNode& node, std::span<const uint32_t> ids) {
    if (!store_) return;
    const auto is_new = [&](const PageName& name) {
        return std::ranges::none_of(node.children, [&](const auto& child) { return child->head.name == name; });
    };
    for (PageHead& head : store_->following(node.head.name, ids, is_new)) tree_.add(node, std::move(head));
}

uint32_t PrefixCache::usable(uint32_t known, size_t total, bool exact) const {
    // At least one token must be run for the logits.
    const uint32_t n = std::min(known, uint32_t(total) - 1);
    return exact ? reusable_tokens(forward_.block_kernels(), n, uint32_t(total)) : n;
}

// Writes a page's content to the device. Returns false if it is nowhere any more.
bool PrefixCache::fill(PrefixNode& node, uint32_t page) {
    const uint32_t tokens = node.head.tokens();
    if (node.bytes) {
        cache().write_page(page, tokens, *node.bytes);
        if (node.fetched == FetchedFrom::nowhere) {
            found_.memory_tokens += tokens;
        } else {
            count_fetched(node);
            drop_bytes(node); // it was only on its way to the device
        }
        return true;
    }
    const auto content = store_ ? store_->read(node.head) : std::nullopt;
    if (!content) return false;
    cache().write_page(page, tokens, *content);
    found_.disk_tokens += tokens;
    return true;
}

// Returns the page on the device, which is retained once more.
std::optional<uint32_t> PrefixCache::load(PrefixNode& node) {
    if (node.device) {
        cache().retain(*node.device);
        if (node.fetched == FetchedFrom::nowhere)
            found_.device_tokens += node.head.tokens();
        else
            count_fetched(node);
        return node.device;
    }
    const std::optional<uint32_t> page = cache().take_page();
    if (!page) return std::nullopt;
    bool filled = false;
    try {
        filled = fill(node, *page);
    } catch (const OutOfMemory&) { // for a copy on the way
    } catch (...) {
        cache().release(*page);
        throw;
    }
    if (!filled) {
        cache().release(*page);
        released_ = true;
        return std::nullopt;
    }
    node.device = *page;
    cache().retain(*page);
    return page;
}

uint32_t PrefixCache::take(uint32_t slot, std::span<const uint32_t> ids, uint32_t own, bool exact, std::string_view tenant) {
    ENSURE(!ids.empty() && own < ids.size() && own <= cache().position(slot), "{} of {} tokens", own, ids.size());
    const PrefixTree::Found found = tree_.find(tree_.root(tenant), ids.first(ids.size() - 1), exact,
                                               [&](PrefixNode& node, std::span<const uint32_t> rest) { expand(node, rest); });
    if (!found.pages.empty()) tree_.touch(*found.pages.back());
    Usable found_here = usable(found, found.tokens, own, ids.size(), exact);
    if (found_here.tokens <= own) return own;
    cache().truncate(slot, own);
    // Its whole pages stay; those retained here are not given up for the others.
    const auto table = cache().table(slot).first(own / page_tokens);
    std::vector<uint32_t> pages(table.begin(), table.end());
    for (const uint32_t page : pages) cache().retain(page);
    try {
        while (pages.size() < pages_of(found_here.tokens)) {
            const auto page = load(*found.pages[pages.size()]);
            if (page)
                pages.push_back(*page);
            else
                found_here = usable(found, uint32_t(pages.size()) * page_tokens, own, ids.size(), exact);
        }
        const uint32_t n = found_here.tokens;
        if (n > own) cache().adopt(slot, std::span(pages).first(pages_of(n)), n, std::move(found_here.state));
    } catch (...) {
        for (const uint32_t page : pages) cache().release(page);
        throw;
    }
    for (const uint32_t page : pages) cache().release(page);
    drop_lost();
    return std::max(found_here.tokens, own);
}

void PrefixCache::write(const PrefixNode& node, uint32_t page, bool wait) {
    const bool to_disk = store_ && !store_->has(node.head), to_all = shared_ && shared_->wants(node.head, wait);
    if (!to_disk && !to_all) return;
    std::vector<std::byte> content(layout_.bytes(node.head.tokens()));
    cache().read_page(page, node.head.tokens(), content);
    if (to_all) shared_->write(node.head, to_disk ? content : std::move(content));
    if (to_disk) store_->write(node.head, std::move(content), wait);
}

uint32_t PrefixCache::still_cold(uint32_t cold) const { return forward_.computation() == computation_ ? cold : 0; }

void PrefixCache::store(uint32_t slot, std::span<const uint32_t> ids, uint32_t cold, bool end, std::string_view tenant) {
    ENSURE(ids.size() <= cache().position(slot), "{} ids of {} tokens", ids.size(), cache().position(slot));
    PrefixNode* parent = &tree_.root(tenant);
    cold = still_cold(cold);
    for (uint32_t at = 0; at < ids.size(); at += page_tokens) {
        const uint32_t count = std::min(page_tokens, uint32_t(ids.size()) - at), page = cache().table(slot)[at / page_tokens];
        if (count < page_tokens && !end) break;
        PrefixNode& node = tree_.insert(*parent, ids.subspan(at, count), cold > at ? std::min(cold - at, count) : 0);
        if (node.head.tokens() == count) {
            if (!node.device) {
                node.device = page;
                cache().retain(page);
            }
            write(node, page, end);
        }
        for (const auto& old : tree_.take_superseded(node)) {
            take_over_states(*old, node);
            forget(*old);
        }
        tree_.touch(node);
        parent = &node;
    }
    drop_lost();
}

void PrefixCache::device_lost() {
    tree_.each([](PrefixNode& node) { node.device.reset(); });
    cache().set_keeper(this);
    released_ = true;
    drop_lost();
}

PrefixCache::Statistics PrefixCache::statistics() const {
    Statistics s = found_;
    tree_.each([&](PrefixNode& node) {
        s.device_pages += node.device ? 1 : 0;
        s.memory_pages += node.bytes ? 1 : 0;
        s.memory_states += node.states.size();
    });
    s.memory_bytes = memory_bytes_;
    if (shared_) s.shared = shared_->statistics();
    if (remote_) s.remote = remote_->statistics();
    return s;
}

void PrefixCache::flush() {
    if (store_) store_->flush();
    if (shared_) shared_->flush();
}

std::vector<std::string> PrefixCache::take_warnings() {
    std::vector<std::string> all;
    if (store_) all = store_->take_warnings();
    if (shared_)
        for (std::string& warning : shared_->take_warnings()) all.push_back(std::move(warning));
    if (remote_)
        for (std::string& warning : remote_->take_warnings()) all.push_back(std::move(warning));
    return all;
}

} // namespace tq
