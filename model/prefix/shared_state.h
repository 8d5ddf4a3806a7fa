// What SharedPages and its two threads share.
#pragma once
#include "model/prefix/fetched_state.h"
#include "model/prefix/shared_pages.h"
#include <deque>
#include <set>

namespace tq {

struct SharedPages::Shared final : FetchedPages::State {
    struct Job {
        PageHead head;
        std::vector<std::byte> content;
        size_t bytes; // in the store
    };

    // One thread's store, and the connection of it that has last answered.
    struct Opened {
        std::unique_ptr<SharedStore> store;
        uint64_t connection = 0;

        SharedStore& get(const Options& options) {
            if (!store) store = options.open();
            return *store;
        }
    };

    Shared(const Options& options, const PageLayout& layout, uint64_t max_state_bytes);

    bool accepts(uint64_t pages, Clock::time_point now) override;
    Clock::time_point deadline(const PageFetch& fetch) const override;
    void note_late(const PageFetch& fetch) override;

    void read_pages(); // the threads; with mutex free
    void write_pages();

    size_t page_bytes() const;                    // of a whole page in the store
    size_t max_bytes(const PageHead& head) const; // the same, or of a state

    const Options options;
    const PageLayout layout;
    const uint64_t max_state_bytes;
    // Guarded by mutex:
    Clock::time_point stop_at{}; // the end of waiting for the writer
    std::thread reader, writer;

    Breaker writes;
    std::deque<Job> jobs; // the first one is being written
    uint64_t waiting_bytes = 0;
    std::set<PageName> present, bad; // believed to be in the store, or waiting to be written; there, but not what they should be
    Clock::time_point present_since = Clock::now(), heard_at = Clock::now(); // heard_at: when the store last answered
    bool confirm = false; // the writer is to ask the store whether it is still there
    Statistics counts;

  private:
    void probe(Lock& lock, Opened& opened, Breaker& breaker);
    std::shared_ptr<PageFetch> next_fetch();
    void fetch_page(Lock& lock, Opened& opened, PageFetch& fetch);
    void end_get(PageFetch& fetch, Clock::time_point began, const std::string& problem, bool rejected);
    void write_page(Lock& lock, Opened& opened);
    void drop_jobs();
    void heard(Opened& opened);
};

} // namespace tq
