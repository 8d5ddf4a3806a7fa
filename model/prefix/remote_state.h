// What RemotePages and its thread share.
#pragma once
#include "model/prefix/fetched_state.h"
#include "model/prefix/remote_pages.h"

namespace tq {

struct RemotePages::Shared final : FetchedPages::State {
    Shared(const Options& options, const PageLayout& layout);

    bool accepts(uint64_t pages, Clock::time_point now) override;
    Clock::time_point deadline(const PageFetch& fetch) const override;
    void note_late(const PageFetch& fetch) override;

    void run(); // the thread; with mutex free

    const Options options;
    const PageLayout layout;
    // Guarded by mutex:
    std::thread asker;
    // Of the other machine, as last measured: until its first page would be on its way, and then for each.
    std::chrono::nanoseconds remote_start{};
    std::optional<std::chrono::nanoseconds> remote_page_time;
    Clock::time_point measured_at{};
    Statistics counts;

  private:
    struct Asking; // for the pages of one prompt
    bool pays(uint64_t pages, Clock::time_point now) const;
    std::shared_ptr<PageFetch> next_fetch();
    void ask(Lock& lock, const std::shared_ptr<PageFetch>& fetch);
    void end(Asking& asking, const std::string& problem);
    void measure(const Asking& asking);
};

} // namespace tq
