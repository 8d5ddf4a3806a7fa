// The bookkeeping of a KV cache; CacheVectors stores the vectors. A slot is a sequence. Its tokens are in pages of page_tokens
// tokens of every layer. Pages are counted, so slots share a common prefix: fork() copies nothing.
// Beside its pages a slot has a full-precision window and the states of recurrent layers. Both are those after its last token,
// and cannot be computed back for an earlier one. So a slot keeps copies of them at a few lengths, its checkpoints. The states
// can also be those of a few tokens before: of the tokens after settled() the updates are pending, and a later pass applies them
// first. kept() says to which length a slot can be cut: to any length if it has neither, a few tokens back if a window survives
// that and those are pending, else to a checkpoint. truncate(), cut() and fork() take a slot there; nothing goes around kept().
#pragma once
#include "model/cache_vectors.h"
#include "model/kv/conditioning.h"
#include "model/kv/window.h"
#include "model/pass_rows.h"
#include "model/saved_slot.h"
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tq {

inline constexpr uint32_t page_tokens = 256;
static_assert(page_tokens == mean_positions);
constexpr uint32_t pages_of(uint64_t tokens) { return uint32_t((tokens + page_tokens - 1) / page_tokens); }

// Retains pages that no slot has, until they are used again or somebody else needs the room.
class PageKeeper {
  public:
    virtual ~PageKeeper() = default;
    // Returns the number of pages that it alone retains.
    virtual uint32_t spare_pages() const = 0;
    // Releases at least `pages` of the retained pages that nobody else has, or all.
    virtual void give_up(uint32_t pages) = 0;
    // Releases this page, which slots have too, if it retains it.
    virtual void give_up_page(uint32_t page) = 0;
};

class Cache {
  public:
    struct Shape {
        uint32_t slots, pages;
        uint32_t context_size;                         // maximum tokens of a slot
        uint32_t window_tokens = 0;                    // KvOptions::window, if some layer has one
        bool recurrent = false;                        // slots have states (Config::has_states())
        uint32_t pending = 0;                          // maximum tokens of a slot whose updates of these are pending
        uint64_t checkpoint_bytes = uint64_t(1) << 30; // of host memory, for the checkpoints of all slots

        // Whether slots have a window or states.
        bool has_beside() const { return recurrent || window_tokens != 0; }
    };
    // Without vectors it is the bookkeeping alone.
    explicit Cache(const Shape& shape);
    Cache(const Cache&) = delete;
    Cache& operator=(const Cache&) = delete;
    // The vectors read this cache's tables, and must outlive its use.
    void store_in(CacheVectors& vectors) { vectors_ = &vectors; }

    const Shape& shape() const { return shape_; }
    uint32_t free_pages() const { return uint32_t(free_.size()); }
    uint32_t position(uint32_t slot) const { return slots_[slot].position; } // its tokens
    std::span<const uint32_t> table(uint32_t slot) const {
        return slots_[slot].pages;
    } // page of each page_tokens tokens, in order
    const WindowPositions& window(uint32_t slot) const { return slots_[slot].window; }
    uint32_t references(uint32_t page) const { return references_[page]; }
    // Increases with every change of a table.
    uint64_t version() const { return version_; }

    // The keeper is asked for pages if none is free; null: nobody. It must outlive its use here.
    void set_keeper(PageKeeper* keeper) { keeper_ = keeper; }

    // Gives slots room for `tokens` more tokens each; each slot occurs once. A page that is partly filled and shared is copied
    // first. Throws OutOfMemory, with the numbers, before any slot is changed.
    struct Need {
        uint32_t slot, tokens;
    };
    void reserve(std::span<const Need> needs);
    void reserve(uint32_t slot, uint32_t tokens) { reserve(std::array{Need{slot, tokens}}); }
    // Returns the number of tokens that reserve() can give a slot.
    uint32_t room(uint32_t slot) const;
    // Call it when `tokens` tokens, for which there is room, have been stored at the slot's position. settled: the states are
    // those after this many tokens. Later tokens may be rejected; their updates stay pending.
    void advance(uint32_t slot, uint32_t tokens, uint32_t settled = UINT32_MAX);
    // The tokens of a slot that its states are after: all, unless some are pending.
    uint32_t settled(uint32_t slot) const { return slots_[slot].settled; }
    // Applies the pending updates. All tokens of the slot are certain (truncate(), the next run).
    void settle(uint32_t slot) const;

    // Returns the maximum number of tokens, at most n <= position(slot), to which a slot can be cut. stored: positions up to this
    // may have been written (0: up to its own). It is n if nothing is cut. It is also n if the window survives the cut and, if
    // there are states, all tokens that are cut are pending. Otherwise it is the longest checkpoint of at most n tokens, or 0.
    uint32_t kept(uint32_t slot, uint32_t n, uint32_t stored = 0) const;
    // Forgets a slot's positions from n on, n = kept(slot, n, stored); those before are certain. Exact: the next run behaves as
    // if these positions had never been run. Throws Error if a checkpoint cannot be put back; the slot is then empty.
    void truncate(uint32_t slot, uint32_t n, uint32_t stored = 0);
    // Forgets positions from kept(slot, n, stored) on, and returns that number.
    uint32_t cut(uint32_t slot, uint32_t n, uint32_t stored = 0);
    // Makes slot `to` the first n tokens of slot `from`, n = kept(from, n): whole pages are shared, with the last one, until
    // either slot writes to it.
    void fork(uint32_t from, uint32_t to, uint32_t n);

    // Keeps a copy of the slot's window and states, if it has any, so that it can be cut to this length later. If there are many
    // checkpoints, some are dropped (superfluous_checkpoints(), separately for those at ends of pages and the others). If all
    // slots' checkpoints exceed Shape::checkpoint_bytes, the one that is nearest to its predecessor in the slot is dropped: it
    // costs the fewest tokens to run again. Throws Error if the device is lost.
    void checkpoint(uint32_t slot);
    // Returns a slot's checkpoint of n tokens; null: none.
    std::shared_ptr<const SavedSlot> checkpoint_at(uint32_t slot, uint32_t n) const;
    std::vector<uint32_t> checkpoints(uint32_t slot) const; // their tokens, in order

    // Keep a page while no slot has it, and give it up again.
    void retain(uint32_t page) { references_[page]++; }
    void release(uint32_t page);
    // Returns a page that is retained once, or nothing if none is free.
    std::optional<uint32_t> take_page();
    // Makes `tokens` tokens, in these pages in order, the content of a slot. saved: the window and states of a slot of these
    // tokens, which become a checkpoint; not null if slots have a window or states.
    void adopt(uint32_t slot, std::span<const uint32_t> pages, uint32_t tokens, std::shared_ptr<const SavedSlot> saved = nullptr);

    // Like those of CacheVectors.
    PageLayout page_layout() const { return vectors().page_layout(); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const { vectors().read_page(page, tokens, bytes); }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) {
        vectors().write_page(page, tokens, bytes);
    }
    uint64_t state_bytes() const { return vectors_ ? vectors_->state_bytes() : 0; }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) const { return vectors().stored(slot, layer, side); }
    std::optional<std::string> find_nonfinite(uint32_t slot) const { return vectors().find_nonfinite(slot); }
    // Returns a slot's window (the tokens that it keeps) and states. put_slot() puts them into a slot whose first tokens are the
    // same, and cuts it to them: its next run is then that of the slot that they were saved from. An empty SavedSlot changes
    // nothing. Both throw Error if the device is lost. A slot is settled before it is saved.
    SavedSlot save_slot(uint32_t slot) const;
    void put_slot(uint32_t slot, const SavedSlot& saved);
    // mark() notes the slot's length and what is beside its pages; return_to() takes it back there, whatever has been run since,
    // if the slot was not cut further. A checkpoint may go in between; a mark does not.
    SavedSlot mark(uint32_t slot) const { return shape_.has_beside() ? save_slot(slot) : SavedSlot{position(slot)}; }
    void return_to(uint32_t slot, const SavedSlot& mark) {
        mark.bytes() == 0 ? truncate(slot, mark.tokens) : put_slot(slot, mark);
    }
    // Replaces the content of a slot with `tokens` tokens (at most the context). `source` gives their bytes page by page, in
    // order: those of read_page() from a cache of the same types and model, in this implementation or another. saved: the window
    // and states of a slot of these tokens; not empty if slots have recurrent states. Throws OutOfMemory as reserve() does, and
    // what `source` throws; the slot is then empty.
    void restore(uint32_t slot, uint32_t tokens, const PageSource& source, const SavedSlot& saved = {});
    // Fills a slot to n tokens for measurements at depth: repeats the stored vectors of the
    // first position(slot), an even number above 0 (n >= position(slot)); recurrent states stay. Throws OutOfMemory as reserve()
    // does.
    void repeat(uint32_t slot, uint32_t n);

    // A copy of all slots and pages, with windows and states. A cache of the same shape, types and model in another
    // implementation can take it.
    struct Image;
    Image image() const; // throws Error when the device is lost, OutOfMemory
    void put_back(const Image& image);
    void keep_tables_of(const Image& image); // without bytes

    // Makes a slot's table and positions those of a slot of another cache with the same shape, which does the bookkeeping.
    void mirror(uint32_t slot, std::span<const uint32_t> pages, uint32_t position, uint32_t window_begin);

  private:
    CacheVectors& vectors() const; // ENSUREs that there are any
    using Checkpoint = std::shared_ptr<const SavedSlot>;
    struct Slot {
        std::vector<uint32_t> pages;
        uint32_t position = 0;
        mutable uint32_t settled = 0; // tokens that the states are after: their form, not their content
        uint32_t certain = 0;         // tokens that are no drafts, or were right
        WindowPositions window;
        std::vector<Checkpoint> checkpoints = {}; // in order
    };
    bool copies_last(const Slot& slot) const;                 // the page that it writes to next is shared
    uint64_t pages_needed(std::span<const Need> needs) const; // for reserve()
    void make_room(std::span<const Need> needs);              // the same for pages
    uint32_t take();
    bool keeps_beside(const Slot& slot, uint32_t n, uint32_t stored) const; // if it is cut so, without a checkpoint
    void forget(uint32_t slot, uint32_t n, uint32_t stored);                // truncate() of the counts alone
    void put_beside(uint32_t slot, const SavedSlot& saved); // at the slot's position; if it fails, the slot is empty
    void add_checkpoint(Slot& slot, Checkpoint checkpoint);
    void keep_within_budget(const Checkpoint& newest);

    const Shape shape_;
    std::vector<Slot> slots_;
    std::vector<uint32_t> references_, free_; // of each page; the last free one is taken first
    uint64_t version_ = 0;
    PageKeeper* keeper_ = nullptr;
    CacheVectors* vectors_ = nullptr;
};

// Returns which checkpoints a sequence can do without, by their indices in `lengths`, the last one first. A checkpoint goes if
// the one before and the one after it are at most three times as far apart as the one after is from the last. So of a sequence
// that has one every 2k tokens, those about 2k, 8k and 32k before the end stay. The last two stay, and the first, up to which
// conversations are alike that begin alike.
std::vector<size_t> superfluous_checkpoints(std::span<const uint32_t> lengths);

struct Cache::Image {
    std::vector<Slot> slots;
    std::vector<uint32_t> references, free;
    uint64_t version;
    PageKeeper* keeper;
    std::vector<std::vector<std::byte>> pages; // empty if nobody has one
    std::vector<SavedSlot> beside;             // of each slot
};

} // namespace tq
