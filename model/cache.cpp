// Pages are shared, so a page that a slot writes to must be its own. reserve() sees to that before a pass, which is why no kernel
// has to know of sharing: it takes the pages that are missing, and copies a last page that is partly filled and that another slot
// or the keeper has, too. It counts first (pages_needed) and fails before it changes anything. If pages are short, the keeper
// (the prefix cache) gives up those that it alone has; if that is not enough, it lets go of shared last pages, which then need no
// copy. version_ changes whenever a table does. A device uploads the tables only then, because a token's pass would otherwise
// wait for it. Three lengths describe a slot. position: what its pages hold. settled: the tokens that its recurrent states are
// after. certain: the tokens that no later refusal of a draft takes back. Each operation that moves one keeps settled <=
// position, and a slot is settled before it is copied or saved. If checkpoints exceed their memory, the one goes whose loss costs
// the fewest tokens to run again, of all slots.
#include "model/cache.h"
#include "base/ensure.h"
#include "base/error.h"
#include <algorithm>
#include <new>
#include <numeric>

namespace tq {

Cache::Cache(const Shape& shape) : shape_(shape), slots_(shape.slots), references_(shape.pages), free_(shape.pages) {
    ENSURE(shape.slots > 0 && shape.pages > 0 && shape.context_size > 0, "{} slots, {} pages, {} tokens", shape.slots,
           shape.pages, shape.context_size);
    ENSURE(shape.pending <= max_pending, "{} tokens", shape.pending);
    std::iota(free_.rbegin(), free_.rend(), 0u);
    for (Slot& slot : slots_) slot.window.tokens = shape.window_tokens;
}

CacheVectors& Cache::vectors() const {
    ENSURE(vectors_ != nullptr, "{} pages without vectors", shape_.pages);
    return *vectors_;
}

bool Cache::copies_last(const Slot& slot) const {
    return slot.position % page_tokens != 0 && references_[slot.pages[slot.position / page_tokens]] > 1;
}

// The last of the slots that share a page keeps it.
uint64_t Cache::pages_needed(std::span<const Need> needs) const {
    uint64_t pages = 0;
    std::vector<uint32_t> copied;
    for (const Need& need : needs) {
        const Slot& slot = slots_[need.slot];
        const uint32_t needed = pages_of(uint64_t(slot.position) + need.tokens), has = uint32_t(slot.pages.size());
        pages += needed > has ? needed - has : 0;
        if (need.tokens == 0 || !copies_last(slot)) continue;
        const uint32_t last = slot.pages[slot.position / page_tokens];
        if (references_[last] - std::ranges::count(copied, last) > 1) copied.push_back(last);
    }
    return pages + copied.size();
}

uint32_t Cache::room(uint32_t slot) const {
    const Slot& s = slots_[slot];
    const uint32_t copies = copies_last(s) ? 1 : 0;
    const uint64_t available = free_pages() + (keeper_ ? keeper_->spare_pages() : 0);
    if (copies > available) return 0;
    const uint64_t pages = s.pages.size() + available - copies;
    return uint32_t(std::min<uint64_t>(pages * page_tokens, shape_.context_size)) - s.position;
}

uint32_t Cache::take() {
    const uint32_t page = free_.back();
    free_.pop_back();
    references_[page] = 1;
    return page;
}

void Cache::release(uint32_t page) {
    ENSURE(references_[page] > 0, "page {}", page);
    if (--references_[page] == 0) free_.push_back(page);
}

std::optional<uint32_t> Cache::take_page() {
    if (free_.empty() && keeper_) keeper_->give_up(1);
    return free_.empty() ? std::nullopt : std::optional(take());
}

// Asks the keeper for pages if too few are free. If they are not enough, the keeper releases the shared pages that slots write to
// next, so that a slot need not copy a page that only the keeper has besides it.
void Cache::make_room(std::span<const Need> needs) {
    if (!keeper_ || pages_needed(needs) <= free_pages()) return;
    keeper_->give_up(uint32_t(pages_needed(needs) - free_pages()));
    for (const Need& need : needs)
        if (pages_needed(needs) > free_pages() && copies_last(slots_[need.slot]))
            keeper_->give_up_page(slots_[need.slot].pages[position(need.slot) / page_tokens]);
}

void Cache::reserve(std::span<const Need> needs) {
    uint64_t tokens = 0;
    for (const Need& need : needs) {
        ENSURE(need.tokens <= shape_.context_size - position(need.slot), "{} tokens at {}", need.tokens, position(need.slot));
        tokens += need.tokens;
    }
    make_room(needs);
    const uint64_t needed = pages_needed(needs);
    if (needed > free_pages()) {
        const uint64_t room = uint64_t(shape_.pages) * page_tokens, used = room - uint64_t(free_pages()) * page_tokens;
        fail_out_of_memory(
            "the KV cache has room for {} tokens, of which {} are taken, and for {} more it needs {} tokens. Nothing is "
            "lost: a shorter conversation can continue, and for a longer one start with smaller cache types (-ctk, "
            "-ctv), a smaller context (-c) or a smaller model",
            room, used, tokens, needed * page_tokens);
    }
    for (const Need& need : needs) {
        Slot& slot = slots_[need.slot];
        if (need.tokens > 0) slot.certain = slot.position;
        if (need.tokens > 0 && slot.position == 0 && shape_.recurrent && vectors_) vectors_->clear_state(need.slot);
        if (need.tokens > 0 && copies_last(slot)) {
            uint32_t& last = slot.pages[slot.position / page_tokens];
            const uint32_t own = take();
            if (vectors_) vectors_->copy_page(last, own, slot.position % page_tokens);
            release(last);
            last = own;
            version_++;
        }
        while (slot.pages.size() < pages_of(uint64_t(slot.position) + need.tokens)) {
            slot.pages.push_back(take());
            version_++;
        }
    }
}

void Cache::advance(uint32_t slot, uint32_t tokens, uint32_t settled) {
    Slot& s = slots_[slot];
    ENSURE(pages_of(uint64_t(s.position) + tokens) <= s.pages.size(), "{} tokens at {}", tokens, s.position);
    s.position += tokens;
    s.settled = shape_.recurrent ? std::min(s.position, settled) : s.position;
    if (s.settled == s.position) s.certain = s.position;
    ENSURE(s.position - s.settled <= shape_.pending, "{} of {} tokens are settled", s.settled, s.position);
}

void Cache::settle(uint32_t slot) const {
    const Slot& s = slots_[slot];
    ENSURE(s.certain == s.position, "{} of {} tokens are certain", s.certain, s.position);
    if (s.settled < s.position && vectors_) vectors_->settle_state(slot, s.settled, s.position);
    s.settled = s.position;
}

// Pages can be cut anywhere, but windows and states cannot: a recurrent state is after a certain token and has no past, and a
// window's ring overwrites its oldest tokens. So a slot can be cut to n tokens if n is its end, or the window still has the
// tokens before n and no state is past it; else only to a checkpoint.
bool Cache::keeps_beside(const Slot& slot, uint32_t n, uint32_t stored) const {
    const uint32_t end = std::max(stored, slot.position);
    if (n == 0 || n == end || !shape_.has_beside()) return true;
    if (shape_.recurrent && (n < slot.settled || end > slot.position)) return false;
    return shape_.window_tokens == 0 || slot.window.survives(end, n);
}

uint32_t Cache::kept(uint32_t slot, uint32_t n, uint32_t stored) const {
    const Slot& s = slots_[slot];
    if (keeps_beside(s, n, stored)) return n;
    const auto after = std::ranges::upper_bound(s.checkpoints, n, {}, [](const Checkpoint& c) { return c->tokens; });
    return after == s.checkpoints.begin() ? 0 : (*std::prev(after))->tokens;
}

void Cache::truncate(uint32_t slot, uint32_t n, uint32_t stored) {
    ENSURE(kept(slot, n, stored) == n, "{} of {} tokens, {} stored", n, position(slot), stored);
    const bool keeps = keeps_beside(slots_[slot], n, stored);
    forget(slot, n, stored);
    if (!keeps) put_beside(slot, *checkpoint_at(slot, n));
}

uint32_t Cache::cut(uint32_t slot, uint32_t n, uint32_t stored) {
    n = kept(slot, n, stored);
    truncate(slot, n, stored);
    return n;
}

void Cache::forget(uint32_t slot, uint32_t n, uint32_t stored) {
    Slot& s = slots_[slot];
    ENSURE(n <= s.position, "{} of {}", n, s.position);
    s.window.forget(std::max(stored, s.position), n);
    s.position = n;
    s.settled = std::min(s.settled, n);
    s.certain = n;
    std::erase_if(s.checkpoints, [&](const Checkpoint& c) { return c->tokens > n; });
    while (s.pages.size() > pages_of(n)) {
        release(s.pages.back());
        s.pages.pop_back();
        version_++;
    }
}

// Pages are shared by counting; windows and states are copied, since they are overwritten in place.
void Cache::fork(uint32_t from, uint32_t to, uint32_t n) {
    ENSURE(from != to && n <= position(from) && kept(from, n) == n, "{} of {} tokens of slot {} for {}", n, position(from), from,
           to);
    truncate(to, 0);
    const bool keeps = keeps_beside(slots_[from], n, 0);
    slots_[to] = slots_[from];
    for (const uint32_t page : slots_[to].pages) retain(page);
    version_++;
    forget(to, n, 0);
    if (!keeps) return put_beside(to, *checkpoint_at(to, n));
    if (shape_.window_tokens != 0 && vectors_) vectors_->copy_window(from, to);
    if (shape_.recurrent && n > 0 && vectors_) vectors_->copy_state(from, to);
}

// Checkpoints shall lie the denser, the nearer they are to the end. One is superfluous if the gap that its loss would leave is at
// most three times the distance of its right neighbour from the end. So their number grows with the logarithm of the length. The
// first one and the last one stay.
std::vector<size_t> superfluous_checkpoints(std::span<const uint32_t> lengths) {
    std::vector<size_t> out;
    if (lengths.empty()) return out;
    const uint32_t end = lengths.back();
    uint32_t next = end;
    for (size_t i = lengths.size() - 1; i-- > 1;)
        if (next - lengths[i - 1] <= 3 * uint64_t(end - next))
            out.push_back(i);
        else
            next = lengths[i];
    return out;
}

std::vector<uint32_t> Cache::checkpoints(uint32_t slot) const {
    std::vector<uint32_t> lengths;
    for (const Checkpoint& c : slots_[slot].checkpoints) lengths.push_back(c->tokens);
    return lengths;
}

std::shared_ptr<const SavedSlot> Cache::checkpoint_at(uint32_t slot, uint32_t n) const {
    const auto found = std::ranges::find(slots_[slot].checkpoints, n, [](const Checkpoint& c) { return c->tokens; });
    return found == slots_[slot].checkpoints.end() ? nullptr : *found;
}

void Cache::checkpoint(uint32_t slot) {
    Slot& s = slots_[slot];
    if (!shape_.has_beside() || s.position == 0 || !s.window.is_whole(s.position) || checkpoint_at(slot, s.position)) return;
    settle(slot);
    try {
        add_checkpoint(s, std::make_shared<SavedSlot>(save_slot(slot)));
    } catch (const OutOfMemory&) { // then there is none
    } catch (const std::bad_alloc&) {
    }
}

void Cache::add_checkpoint(Slot& slot, Checkpoint checkpoint) {
    if (checkpoint->bytes() > shape_.checkpoint_bytes) return;
    slot.checkpoints.push_back(checkpoint);
    for (const bool page_ends : {true, false}) { // the prefix cache needs the former
        std::vector<uint32_t> lengths;
        for (const Checkpoint& c : slot.checkpoints)
            if (c == checkpoint || (c->tokens % page_tokens == 0) == page_ends) lengths.push_back(c->tokens);
        for (const size_t i : superfluous_checkpoints(lengths))
            std::erase_if(slot.checkpoints, [&](const Checkpoint& c) { return c->tokens == lengths[i]; });
    }
    keep_within_budget(checkpoint);
}

void Cache::keep_within_budget(const Checkpoint& newest) {
    for (;;) {
        uint64_t bytes = 0;
        uint32_t min = UINT32_MAX;
        std::pair<Slot*, size_t> cheapest{};
        for (Slot& slot : slots_)
            for (size_t i = 0; i < slot.checkpoints.size(); i++) {
                const Checkpoint& c = slot.checkpoints[i];
                const uint32_t again = c->tokens - (i > 0 ? slot.checkpoints[i - 1]->tokens : 0);
                bytes += c->bytes();
                if (c != newest && again < min) min = again, cheapest = {&slot, i};
            }
        if (bytes <= shape_.checkpoint_bytes || !cheapest.first) return;
        auto& of = cheapest.first->checkpoints;
        of.erase(of.begin() + ptrdiff_t(cheapest.second));
    }
}

// Checkpoints within the pages that stay are those of the new content, too.
void Cache::adopt(uint32_t slot, std::span<const uint32_t> pages, uint32_t tokens, std::shared_ptr<const SavedSlot> saved) {
    ENSURE(pages.size() == pages_of(tokens) && tokens <= shape_.context_size, "{} pages for {} tokens", pages.size(), tokens);
    ENSURE(!shape_.has_beside() || tokens == 0 || (saved && saved->tokens == tokens), "{} tokens without what is beside them",
           tokens);
    for (const uint32_t page : pages) retain(page); // first: some may be the slot's own
    Slot& s = slots_[slot];
    const auto same = uint32_t(std::ranges::mismatch(s.pages, pages).in1 - s.pages.begin()) * page_tokens;
    std::vector<Checkpoint> checkpoints = s.checkpoints;
    std::erase_if(checkpoints, [&](const Checkpoint& c) { return c->tokens > std::min(same, tokens) || c->tokens == tokens; });
    truncate(slot, 0);
    s.pages.assign(pages.begin(), pages.end());
    s.position = s.settled = s.certain = tokens;
    s.window.start(tokens, tokens);
    s.checkpoints = std::move(checkpoints);
    version_++;
    if (!saved) return;
    put_beside(slot, *saved);
    add_checkpoint(s, std::move(saved));
}

void Cache::mirror(uint32_t slot, std::span<const uint32_t> pages, uint32_t position, uint32_t window_begin) {
    Slot& s = slots_[slot];
    ENSURE(pages_of(position) <= pages.size(), "{} pages for {} tokens", pages.size(), position);
    if (!std::ranges::equal(s.pages, pages)) {
        s.pages.assign(pages.begin(), pages.end());
        version_++;
    }
    s.position = s.settled = s.certain = position;
    s.window.start(window_begin, position);
}

void Cache::restore(uint32_t slot, uint32_t tokens, const PageSource& source, const SavedSlot& saved) {
    ENSURE(saved.bytes() == 0 || saved.tokens == tokens, "{} tokens with what {} had", tokens, saved.tokens);
    ENSURE(!shape_.recurrent || tokens == 0 || !saved.state.empty(), "{} tokens without their states", tokens);
    truncate(slot, 0);
    reserve(slot, tokens);
    const PageLayout layout = page_layout();
    std::vector<std::byte> bytes;
    try {
        for (uint32_t at = 0; at < tokens; at += page_tokens) {
            const uint32_t count = std::min(page_tokens, tokens - at);
            bytes.resize(layout.bytes(count));
            source(at, bytes);
            write_page(table(slot)[at / page_tokens], count, bytes);
        }
        advance(slot, tokens);
        slots_[slot].window.start(tokens, tokens);
        put_slot(slot, saved);
    } catch (...) {
        truncate(slot, 0);
        throw;
    }
}

SavedSlot Cache::save_slot(uint32_t slot) const {
    if (shape_.recurrent) settle(slot);
    const Slot& s = slots_[slot];
    SavedSlot saved{s.position};
    if (shape_.window_tokens != 0 && s.window.begin < s.position) {
        saved.window_tokens = std::min(s.position - s.window.begin, kept_window_tokens(shape_.window_tokens));
        saved.window.resize(window_layout(page_layout()).bytes(saved.window_tokens));
        vectors().read_window(slot, s.position - saved.window_tokens, saved.window_tokens, saved.window);
    }
    if (shape_.recurrent && s.position > 0) {
        saved.state.resize(vectors().state_bytes());
        vectors().read_state(slot, s.position, saved.state);
    }
    return saved;
}

void Cache::put_slot(uint32_t slot, const SavedSlot& saved) {
    if (saved.bytes() == 0) return;
    ENSURE(saved.tokens <= position(slot), "{} of {} tokens", saved.tokens, position(slot));
    forget(slot, saved.tokens, 0);
    put_beside(slot, saved);
}

// A slot whose window or state is half written must not be used, so a failure empties it.
void Cache::put_beside(uint32_t slot, const SavedSlot& saved) {
    Slot& s = slots_[slot];
    ENSURE(saved.tokens == s.position && saved.window_tokens <= saved.tokens, "{} and {} of {} tokens", saved.tokens,
           saved.window_tokens, s.position);
    ENSURE(!vectors_ || saved.state.size() == (shape_.recurrent ? vectors_->state_bytes() : 0), "{} bytes of states",
           saved.state.size());
    try {
        const uint32_t first = s.position - saved.window_tokens;
        if (saved.window_tokens != 0) vectors().write_window(slot, first, saved.window_tokens, saved.window);
        s.window.start(first, s.position);
        if (shape_.recurrent) vectors().write_state(slot, s.position, saved.state);
        s.settled = s.position;
    } catch (...) {
        forget(slot, 0, 0);
        throw;
    }
}

Cache::Image Cache::image() const {
    for (uint32_t slot = 0; slot < shape_.slots; slot++) settle(slot);
    Image image{.slots = slots_,
                .references = references_,
                .free = free_,
                .version = version_,
                .keeper = keeper_,
                .pages = {},
                .beside = {}};
    for (uint32_t page = 0; page < shape_.pages; page++) {
        image.pages.emplace_back(references_[page] != 0 ? page_layout().bytes(page_tokens) : 0);
        if (references_[page] != 0) read_page(page, page_tokens, image.pages.back());
    }
    for (uint32_t slot = 0; slot < shape_.slots; slot++) image.beside.push_back(save_slot(slot));
    return image;
}

void Cache::keep_tables_of(const Image& image) {
    ENSURE(image.slots.size() == slots_.size() && image.references.size() == references_.size(), "{} slots, {} pages",
           image.slots.size(), image.references.size());
    slots_ = image.slots;
    for (Slot& slot : slots_) slot.window.start(slot.position, slot.position);
    references_ = image.references;
    free_ = image.free;
    version_ = image.version + 1;
    keeper_ = image.keeper;
}

void Cache::put_back(const Image& image) {
    keep_tables_of(image);
    for (uint32_t page = 0; page < shape_.pages; page++)
        if (!image.pages[page].empty()) write_page(page, page_tokens, image.pages[page]);
    for (uint32_t slot = 0; slot < shape_.slots; slot++) put_slot(slot, image.beside[slot]);
}

void Cache::repeat(uint32_t slot, uint32_t n) {
    const uint32_t length = position(slot);
    settle(slot);
    ENSURE(length > 0 && length % 2 == 0 && n >= length, "{} to {}", length, n);
    reserve(slot, n - length);
    vectors().repeat(slot, length, n);
    slots_[slot].window.repeated(length, n, kept_window_tokens(shape_.window_tokens));
    advance(slot, n - length);
}

} // namespace tq
