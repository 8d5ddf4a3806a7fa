// The prefix cache: nothing that was run once is run again. The pages of all sequences are known by their ids, in a tree
// (tree.h), and are in up to three places: in the device's pool, where a slot takes them without a copy, in host memory, and on
// the disk (page_store.h), where they outlive the process. In each the pages that were used least recently make room for others.
#pragma once
#include "model/forward.h"
#include "model/prefix/page_store.h"
#include "model/prefix/tree.h"

namespace tq {

class PrefixCache final : public PageKeeper {
  public:
    struct Options {
        uint64_t memory_bytes = 0; // of host memory
        PageStore::Options disk{}; // no directory: none
    };
    // `forward`, which must outlive it, has no window: those are not in pages. Takes over the spare pages of its cache.
    PrefixCache(Forward& forward, const OwnerTexts& owner, const Options& options);
    ~PrefixCache();

    // Puts the longest known beginning of a prompt into a slot, whose first `own` tokens are the prompt's, too, and are to stay.
    // Returns the slot's tokens, at least `own` and less than all ids. Exact: as many as leave the bits of a cold run; else
    // all, however they were computed, as a conversation that is resumed needs them.
    // Only what the same tenant has stored is found.
    uint32_t take(uint32_t slot, std::span<const uint32_t> ids, uint32_t own, bool exact = true, std::string_view tenant = {});

    // Keeps the pages of a slot that these ids fill, the first `cold` of which have the bits of a cold run (cold.h). end: also a
    // last page that is partly filled, and what the disk was too slow for earlier.
    void store(uint32_t slot, std::span<const uint32_t> ids, uint32_t cold, bool end = false, std::string_view tenant = {});

    // The device was lost, and forward.reopen() has made another cache: what is in memory and on the disk is found there.
    void device_lost();

    struct Statistics {
        uint64_t device_pages = 0, memory_pages = 0, memory_bytes = 0;  // now
        uint64_t device_tokens = 0, memory_tokens = 0, disk_tokens = 0; // of all prompts, found there
    };
    Statistics statistics() const;

    void flush(); // returns when all is on the disk
    std::vector<std::string> take_warnings();

    uint32_t spare_pages() const override;
    void give_up(uint32_t pages) override;
    void give_up_page(uint32_t page) override;

  private:
    bool is_spare(const PrefixNode& node) const;
    bool is_lost(const PrefixNode& node);
    void expand(PrefixNode& node, std::span<const uint32_t> ids);
    uint32_t usable(uint32_t known, size_t total, bool exact) const;
    std::optional<uint32_t> load(PrefixNode& node);
    bool fill(const PrefixNode& node, uint32_t page);
    void release(PrefixNode& node);
    void forget(PrefixNode& node);
    void keep_in_memory(PrefixNode& node);
    void write(const PrefixNode& node, uint32_t page, bool wait);
    void drop_lost();

    Cache& cache() const { return forward_.cache(); } // another one after a move (model/stages/placed_forward.h)
    // The tokens before `cold` that still count as cold: none once the model has moved, for it computes them otherwise.
    uint32_t still_cold(uint32_t cold) const;

    Forward& forward_;
    const std::string computation_; // when it was made
    const PageLayout layout_;
    const uint64_t max_memory_bytes_;
    mutable PrefixTree tree_;
    std::optional<PageStore> store_;
    uint64_t memory_bytes_ = 0;
    bool released_ = false; // some page is perhaps nowhere now
    Statistics found_;
};

} // namespace tq
