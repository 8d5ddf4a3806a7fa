// The state that a source of pages shares with its threads. It lives as long as the last of them, because a system call may hang.
#pragma once
#include "base/error_text.h"
#include "base/printable.h"
#include "model/cache.h"
#include "model/prefix/breaker.h"
#include "model/prefix/fetched_pages.h"
#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <mutex>
#include <thread>
#include <utility>

namespace tq {

// Measures how long this machine takes to run a page of a prompt. Fetching a page may take as long.
class PromptSpeed {
  public:
    // Notes the time that `tokens` tokens of a prompt took. Fewer than 32 are ignored.
    void note(uint64_t tokens, std::chrono::nanoseconds time) {
        constexpr uint64_t min_measured_tokens = 32;
        if (tokens < min_measured_tokens || time.count() <= 0) return;
        const double now = double(tokens) / double(time.count());
        tokens_per_ns_ = tokens_per_ns_ == 0 ? now : 0.75 * tokens_per_ns_ + 0.25 * now;
    }
    // Returns the time of a whole page; nullopt if no prompt was run yet.
    std::optional<std::chrono::nanoseconds> page_time() const {
        if (tokens_per_ns_ == 0) return std::nullopt;
        return std::chrono::nanoseconds(int64_t(std::min(page_tokens / tokens_per_ns_, 1e12)));
    }

  private:
    double tokens_per_ns_ = 0; // 0: not known yet
};

// Sentences for people about something that may fail all the time: one in a while, so that a fault that lasts for days does not
// fill a log.
class RareWarnings {
  public:
    explicit RareWarnings(std::chrono::milliseconds pause) : pause_(pause) {}

    void add(std::string text) {
        const auto now = std::chrono::steady_clock::now();
        if (last_ && now < *last_ + pause_) {
            unsaid_++;
            return;
        }
        last_ = now;
        if (unsaid_ > 0) text += fmt::format(" ({} further problems were not reported)", unsaid_);
        unsaid_ = 0;
        warnings_.push_back(std::move(text));
    }
    std::vector<std::string> take() { return std::exchange(warnings_, {}); }

  private:
    const std::chrono::milliseconds pause_;
    std::vector<std::string> warnings_;
    std::optional<std::chrono::steady_clock::time_point> last_;
    uint64_t unsaid_ = 0; // since the last one
};

struct FetchedPages::State {
    using Clock = std::chrono::steady_clock;
    using Lock = std::unique_lock<std::mutex>;
    // Limits of the time for a page.
    struct PageTime {
        std::chrono::milliseconds first; // as long as no prompt was run
        std::chrono::milliseconds min, max;
    };

    State(const PageTime& limits, std::chrono::milliseconds warning_pause) : limits(limits), warnings(warning_pause) {}
    virtual ~State() = default;

    // A thread that has all this as long as it runs.
    template <class Self> static std::thread thread_of(const std::shared_ptr<Self>& self, void (Self::*run)()) {
        {
            const Lock lock(self->mutex);
            self->running++;
        }
        return std::thread([self, run] {
            ((*self).*run)();
            const Lock lock(self->mutex);
            self->running--;
            self->changed.notify_all();
        });
    }
    // Joins the threads that have ended by then, as `stopping` says; what hangs is left alone.
    void join(std::initializer_list<std::thread*> threads, Clock::time_point by);

    // Calls use() without the lock. Returns the text of its error, which may name what another machine has said; empty: none.
    template <class Use> static std::string unlocked(Lock& lock, const Use& use) {
        lock.unlock();
        std::string problem;
        try {
            use();
        } catch (const std::exception& error) {
            problem = printable(error_text(error), 300);
        }
        lock.lock();
        return problem;
    }

    // All that follow are called with the mutex locked.
    virtual bool accepts(uint64_t pages, Clock::time_point now) = 0;      // whether `pages` pages may be asked for
    virtual Clock::time_point deadline(const PageFetch& fetch) const = 0; // of what is asked for now
    virtual void note_late(const PageFetch& fetch) = 0;                   // it was asked for and did not come in time
    std::chrono::nanoseconds page_time() const;                           // how long a page takes here, within the limits
    std::chrono::nanoseconds time_of_all(const PageFetch& fetch) const;   // that all its pages are worth
    bool is_over(PageFetch& fetch, Clock::time_point now);                // notes that nothing more will arrive, if that is so

    const PageTime limits;
    std::mutex mutex; // guards all that follows
    std::condition_variable changed;
    bool stopping = false;
    uint32_t running = 0; // threads

    std::vector<std::weak_ptr<PageFetch>> fetches; // in the order in which they were asked for
    Breaker reads;
    PromptSpeed speed;
    RareWarnings warnings;
};

} // namespace tq
