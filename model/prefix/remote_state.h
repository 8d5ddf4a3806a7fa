// What RemotePages and its thread share. It lives as long as the longer of them, for a connection may hang.
#pragma once
#include "model/prefix/breaker.h"
#include "model/prefix/prompt_speed.h"
#include "model/prefix/rare_warnings.h"
#include "model/prefix/remote_pages.h"
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tq {

struct RemotePages::Shared {
    using Clock = std::chrono::steady_clock;
    using Lock = std::unique_lock<std::mutex>;

    Shared(const Options& options, const PageLayout& layout) : options(options), layout(layout) {}

    void run(); // the thread; with mutex free

    std::chrono::nanoseconds page_time() const; // how long a page takes here
    bool pays(uint64_t pages, Clock::time_point now) const;
    // Notes that nothing more will arrive, where that is so. Whether it is.
    bool is_over(PageFetch& fetch, Clock::time_point now);

    const Options options;
    const PageLayout layout;
    std::mutex mutex; // guards all that follows
    std::condition_variable changed;
    bool stopping = false, done = false;
    std::thread asker;

    std::vector<std::weak_ptr<PageFetch>> fetches; // in the order in which they were asked for
    Breaker breaker;
    PromptSpeed speed;
    // Of the other machine, as last measured: until its first page would be on its way, and then for each.
    std::chrono::nanoseconds remote_start{};
    std::optional<std::chrono::nanoseconds> remote_page_time;
    Clock::time_point measured_at{};
    Statistics counts;
    RareWarnings warnings{options.warning_pause};

  private:
    struct Asking; // for the pages of one prompt
    std::shared_ptr<PageFetch> next_fetch();
    void ask(Lock& lock, const std::shared_ptr<PageFetch>& fetch);
    void end(Asking& asking, const std::string& problem);
    void measure(const Asking& asking);
};

} // namespace tq
