// Pages that come from elsewhere while the engine goes on: a store that machines share, or another machine that computes them.
// The engine's thread asks (fetch()), and takes pages that have arrived (take()); a thread of the derived class reads. A page is
// worth fetching only if it comes sooner than it could be computed here. So each fetch has a deadline, made of the measured time
// of a page, and after it nothing of it is waited for. A source that failed or was late is left alone for a while (reads). All
// state is under one mutex. The threads hold the state by a shared pointer: if one hangs in a read of a network file system when
// the program ends, it is detached and keeps what it uses.
#include "model/prefix/fetched_pages.h"
#include "model/cache.h"
#include "model/prefix/fetched_state.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

}

void FetchedPages::State::join(std::initializer_list<std::thread*> threads, Clock::time_point by) {
    Lock lock(mutex);
    const bool ended = changed.wait_until(lock, by, [&] { return running == 0; });
    lock.unlock();
    for (std::thread* thread : threads) ended ? thread->join() : thread->detach();
}

std::chrono::nanoseconds FetchedPages::State::page_time() const {
    const auto time = speed.page_time();
    return time ? std::clamp<std::chrono::nanoseconds>(*time, limits.min, limits.max) : limits.first;
}

std::chrono::nanoseconds FetchedPages::State::time_of_all(const PageFetch& fetch) const {
    return fetch.page_time * int64_t(fetch.pages.size() - fetch.first);
}

bool FetchedPages::State::is_over(PageFetch& fetch, Clock::time_point now) {
    if (fetch.finished) return true;
    if (now > deadline(fetch)) {
        fetch.finished = true;
        if (!fetch.began) return true; // its time was spent waiting for others
        reads.failed(now);
        note_late(fetch);
    } else if (!fetch.began) {
        fetch.finished = reads.is_open() || fetch.asked == fetch.pages.size();
    }
    return fetch.finished;
}

void FetchedPages::note_speed(uint64_t tokens, std::chrono::nanoseconds time) {
    const std::lock_guard lock(state_->mutex);
    state_->speed.note(tokens, time);
}

std::shared_ptr<PageFetch> FetchedPages::fetch(std::string tenant, std::vector<PageHead> pages, uint32_t known) {
    return begin({std::move(tenant), std::move(pages), known}, 1);
}

std::shared_ptr<PageFetch> FetchedPages::fetch_state(std::string tenant, std::vector<PageHead> states, uint32_t tokens) {
    return begin({std::move(tenant), std::move(states), 0, true}, pages_of(tokens));
}

// Each page or state that is fetched may take as long as `pages` pages.
std::shared_ptr<PageFetch> FetchedPages::begin(PageFetch requested, uint32_t pages) {
    const std::lock_guard lock(state_->mutex);
    const auto now = State::Clock::now();
    if (requested.next >= requested.pages.size() || !state_->accepts(requested.pages.size() - requested.next, now))
        return nullptr;
    auto fetch = std::make_shared<PageFetch>(std::move(requested));
    fetch->asked_at = now;
    fetch->page_time = std::min<std::chrono::nanoseconds>(state_->page_time() * pages, state_->limits.max);
    fetch->first = fetch->asked = fetch->next;
    state_->fetches.push_back(fetch);
    state_->changed.notify_all();
    return fetch;
}

std::optional<std::vector<std::byte>> FetchedPages::take(PageFetch& fetch, std::chrono::milliseconds wait) {
    State::Lock lock(state_->mutex);
    const auto until = State::Clock::now() + wait;
    while (fetch.arrived.empty()) {
        const auto now = State::Clock::now();
        if (state_->is_over(fetch, now) || now >= until) return std::nullopt;
        state_->changed.wait_until(lock, std::min<State::Clock::time_point>(until, state_->deadline(fetch) + 1ms));
    }
    auto content = std::move(fetch.arrived.front());
    fetch.arrived.pop_front();
    fetch.next++;
    state_->changed.notify_all(); // there is room for another one
    return content;
}

bool FetchedPages::is_coming(PageFetch& fetch) {
    const std::lock_guard lock(state_->mutex);
    return !fetch.arrived.empty() || !state_->is_over(fetch, State::Clock::now());
}

std::vector<std::string> FetchedPages::take_warnings() {
    const std::lock_guard lock(state_->mutex);
    return state_->warnings.take();
}

} // namespace tq
