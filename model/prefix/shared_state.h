// What SharedPages and its two threads share. It lives as long as the longest of them, for a store may hang.
#pragma once
#include "model/prefix/breaker.h"
#include "model/prefix/prompt_speed.h"
#include "model/prefix/rare_warnings.h"
#include "model/prefix/shared_pages.h"
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

namespace tq {

struct SharedPages::Shared {
    using Clock = std::chrono::steady_clock;
    using Lock = std::unique_lock<std::mutex>;
    struct Job {
        PageHead head;
        std::vector<std::byte> content;
    };

    Shared(const Options& options, const PageLayout& layout) : options(options), layout(layout) {}

    void read_pages(); // the threads; with mutex free
    void write_pages();

    size_t page_bytes() const; // of a whole page in the store
    // The price of a page: how long it takes to compute.
    std::chrono::nanoseconds page_time() const;
    // Notes that nothing more will arrive, where that is so. Whether it is.
    bool is_over(PageFetch& fetch, Clock::time_point now);

    const Options options;
    const PageLayout layout;
    std::mutex mutex; // guards all that follows
    std::condition_variable changed;
    bool stopping = false, reader_done = false, writer_done = false;
    Clock::time_point stop_at{}; // the end of waiting for the writer
    std::thread reader, writer;

    std::vector<std::weak_ptr<PageFetch>> fetches; // in the order in which they were asked for
    Breaker reads, writes;
    std::deque<Job> jobs; // the first one is being written
    uint64_t waiting_bytes = 0;
    std::set<PageName> present, bad; // known to be in the store; there, but not what they should be
    Clock::time_point present_since = Clock::now();
    PromptSpeed speed;
    Statistics counts;
    RareWarnings warnings{options.warning_pause};

  private:
    void probe(Lock& lock, std::unique_ptr<SharedStore>& store, Breaker& breaker);
    std::shared_ptr<PageFetch> next_fetch();
    void fetch_page(Lock& lock, std::unique_ptr<SharedStore>& store, PageFetch& fetch);
    void end_get(PageFetch& fetch, Clock::time_point began, const std::string& problem, bool rejected);
    void write_page(Lock& lock, std::unique_ptr<SharedStore>& store);
    void drop_jobs();
};

} // namespace tq
