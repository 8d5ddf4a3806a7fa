// The prefix cache: nothing that was run once is run again. The pages of all sequences are known by their ids, in a tree
// (tree.h), and are in up to four places: in the device's pool, from which a slot takes them without a copy; in host memory; on
// the disk (page_store.h), where they outlive the process; and in a store that other machines use, too (shared_pages.h). In each
// place the least recently used pages make room for others. Another machine may compute pages that are nowhere (remote_pages.h).
// Slots also have windows and recurrent states. These are kept at the ends of some pages, in host memory, on the disk, and in the
// store (state_record.h); and in host memory alone at lengths within a page where prompts end or part. If slots have them, a
// beginning is found only up to a place that has them.
#pragma once
#include "model/forward.h"
#include "model/prefix/page_store.h"
#include "model/prefix/remote_pages.h"
#include "model/prefix/shared_pages.h"
#include "model/prefix/state_record.h"
#include "model/prefix/tree.h"

namespace tq {

// The pages of a prompt that are being fetched: from the shared store, and then from another machine. The caller has the first
// `own` tokens.
struct PromptFetch {
    uint32_t tokens, own;
    bool asks_machine;
    std::shared_ptr<PageFetch> store, machine; // null: not asked, or done
    // If slots have windows or states: the states that the store is asked for first; the one that has come, and the pages that it
    // follows.
    std::shared_ptr<PageFetch> states{};
    std::shared_ptr<const SavedSlot> state{};
    std::vector<PageHead> pages{};
};

class PrefixCache final : public PageKeeper {
  public:
    struct Options {
        uint64_t memory_bytes = 0; // of host memory; two states of each slot have room in any case
        PageStore::Options disk{}; // no directory: none
        // No store unless `open` is set. `owner`: the computation whose pages count as cold. If it does not name one, pages of
        // any device count, though their last bits differ.
        SharedPages::Options shared{};
        RemotePages::Options remote{}; // no machine unless `compute` is set; `owner` as above
    };
    // `forward` must outlive it. Takes over the spare pages of its cache.
    PrefixCache(Forward& forward, const OwnerTexts& owner, const Options& options);
    ~PrefixCache();

    // Begins to fetch the pages of a prompt that the shared store has and no nearer place, if they spare more than the first
    // `own` tokens. Another machine is asked for pages that the store lacks if asks_machine, more than a page is left, and slots
    // have neither windows nor states. States are looked for at the ends of pages for which another machine may have kept one:
    // the last, those before `marks`, and every 2048 tokens. Returns null if there is nothing to fetch.
    std::shared_ptr<PromptFetch> fetch(std::span<const uint32_t> ids, uint32_t own = 0, std::string_view tenant = {},
                                       bool asks_machine = true, std::span<const uint32_t> marks = {});
    // Takes over the pages that have come, and waits for more for at most `wait`. Returns whether more is to come. Call take()
    // once it returns false.
    bool is_coming(PromptFetch& fetch, std::chrono::milliseconds wait);
    // Notes the time that `tokens` tokens of a prompt took to run: no page is waited for longer than it takes to compute.
    void note_speed(uint64_t tokens, std::chrono::nanoseconds time);

    // Returns the content of the whole page that these ids end with, if it has the bits of a cold run. For another machine.
    std::optional<std::vector<std::byte>> content(std::span<const uint32_t> ids, std::string_view tenant = {});

    // Puts the longest known beginning of a prompt into a slot. The slot's first `own` tokens are the prompt's, too, and stay.
    // Returns the slot's tokens, at least `own` and less than all ids. exact: as many as leave the bits of a cold run; else all,
    // however they were computed, as a resumed conversation needs them. If slots have windows or states, no more than there is a
    // state for. Only pages of the same tenant are found.
    uint32_t take(uint32_t slot, std::span<const uint32_t> ids, uint32_t own, bool exact = true, std::string_view tenant = {});

    // Keeps the pages of a slot that these ids fill. The first `cold` ids have the bits of a cold run (cold.h). end: also a last
    // page that is partly filled, and pages for which the disk was too slow earlier.
    void store(uint32_t slot, std::span<const uint32_t> ids, uint32_t cold, bool end = false, std::string_view tenant = {});

    // Keeps the slot's checkpoints at the ends of these ids' pages, which are known. Earlier states on the way go if
    // superfluous_checkpoints() names them, unless several pages follow them. Checkpoints of cold tokens within pages are kept in
    // memory alone: at the end of a prompt, from which the next one of a conversation goes on. end: also states for which the
    // disk was too slow.
    void store_states(uint32_t slot, std::span<const uint32_t> ids, uint32_t cold, bool end = false,
                      std::string_view tenant = {});
    // Returns how many of these ids are in known pages with the bits of a cold run, with or without a state. At this length the
    // prompt branches off.
    uint32_t known_tokens(std::span<const uint32_t> ids, std::string_view tenant = {});

    // Call it after a device was lost and forward.reopen() has made another cache: pages in memory and on the disk stay known.
    void device_lost();

    using Statistics = PrefixStatistics;
    Statistics statistics() const;

    void flush(); // returns when all is on the disk, and nothing waits to be shared
    std::vector<std::string> take_warnings();

    uint32_t spare_pages() const override;
    void give_up(uint32_t pages) override;
    void give_up_page(uint32_t page) override;

  private:
    bool is_spare(const PrefixNode& node) const;
    bool is_lost(const PrefixNode& node);
    void expand(PrefixNode& node, std::span<const uint32_t> ids);
    uint32_t usable(uint32_t known, size_t total, bool exact) const;
    // A beginning that can be put into a slot.
    struct Usable {
        uint32_t tokens = 0;
        std::shared_ptr<const SavedSlot> state{}; // beside its pages
    };
    Usable usable(const PrefixTree::Found& found, uint32_t max, uint32_t own, size_t total, bool exact);
    std::vector<uint32_t> state_lengths(PrefixNode& node, uint32_t end);
    template <class Use> void each_state(const PrefixTree::Found& found, uint32_t max, size_t total, bool exact, const Use& use);
    std::vector<PrefixNode*> known_pages(std::span<const uint32_t> ids, uint32_t cold, std::string_view tenant);
    std::shared_ptr<const SavedSlot> load_state(PrefixNode& node, uint32_t tokens);
    void keep_state(PrefixNode& node, std::shared_ptr<const SavedSlot> state);
    void forget_state(PrefixNode& node, uint32_t tokens);
    void drop_state(PrefixNode& node, uint32_t tokens);
    void drop_states(PrefixNode& node);
    void take_over_states(PrefixNode& from, PrefixNode& to);
    void keep_inner_states(uint32_t slot, std::span<const uint32_t> ids, std::span<PrefixNode* const> pages, uint32_t cold,
                           std::string_view tenant);
    void drop_oldest_states(PrefixNode& node);
    std::optional<uint32_t> load(PrefixNode& node);
    bool fill(PrefixNode& node, uint32_t page);
    PrefixNode* known_child(PrefixNode& node, const PageName& name);
    bool take_over(PageFetch& fetch, std::vector<std::byte> content, FetchedFrom from);
    bool hold(PrefixNode& node, std::vector<std::byte> content, FetchedFrom from);
    uint32_t nearest_state(const PrefixTree::Found& found, size_t total);
    std::shared_ptr<PageFetch> ask_for_state(const PromptFetch& fetch, std::string tenant, std::span<const uint32_t> marks);
    void take_over_state(PromptFetch& fetch, std::span<const std::byte> content);
    void keep_fetched_state(PromptFetch& fetch, std::string_view tenant);
    std::shared_ptr<PageFetch> ask_machine(const PromptFetch& fetch, std::string tenant, std::vector<PageHead> pages,
                                           uint32_t known);
    std::optional<std::vector<std::byte>> content_of(const PrefixNode& node);
    void count_fetched(PrefixNode& node);
    bool make_memory(uint64_t bytes, bool for_state, const PrefixNode* kept = nullptr);
    void drop_bytes(PrefixNode& node);
    void release(PrefixNode& node);
    void forget(PrefixNode& node);
    void keep_in_memory(PrefixNode& node);
    void write(const PrefixNode& node, uint32_t page, bool wait);
    void drop_lost();

    Cache& cache() const { return forward_.cache(); } // another one after a move (model/stages/placed_forward.h)
    // Returns the tokens before `cold` that still count as cold: 0 after the model has moved, since it then computes them
    // otherwise.
    uint32_t still_cold(uint32_t cold) const;

    Forward& forward_;
    const std::string computation_; // when it was made
    const PageLayout layout_;
    const StateLayout state_layout_;
    const uint64_t max_memory_bytes_; // of pages and states
    const uint64_t min_state_bytes_;  // room that states have in any case
    mutable PrefixTree tree_;
    std::optional<PageStore> store_;
    std::optional<SharedPages> shared_;
    std::optional<RemotePages> remote_;
    uint64_t memory_bytes_ = 0;
    bool released_ = false; // some page is perhaps nowhere now
    Statistics found_;
};

} // namespace tq
