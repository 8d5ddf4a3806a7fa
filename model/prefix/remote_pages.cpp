#include "model/prefix/remote_pages.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/cache.h"
#include "model/prefix/remote_state.h"
#include "model/prefix/sent_page.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto remote_grace = 2s;            // for a connection at the end
constexpr auto shortest_page_time = 20ms;    // a computer that is faster needs no other
constexpr auto patient_page_time = 60'000ms; // of a very slow one

} // namespace

RemotePages::RemotePages(const Options& options, const PageLayout& layout) : shared_(std::make_shared<Shared>(options, layout)) {
    shared_->asker = std::thread([shared = shared_] { shared->run(); });
}

RemotePages::~RemotePages() {
    Shared::Lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    const bool ended = shared_->changed.wait_for(lock, remote_grace, [&] { return shared_->done; });
    lock.unlock();
    ended ? shared_->asker.join() : shared_->asker.detach();
}

std::chrono::nanoseconds RemotePages::Shared::page_time() const {
    const auto time = speed.page_time();
    return time ? std::clamp<std::chrono::nanoseconds>(*time, shortest_page_time, patient_page_time) : options.first_page_time;
}

// Whether what is known of the other machine says that so many pages are there sooner than here. What it took once is not taken
// for the truth for ever.
bool RemotePages::Shared::pays(uint64_t pages, Clock::time_point now) const {
    if (!remote_page_time || now > measured_at + options.retry_pause) return true;
    return remote_start + *remote_page_time * int64_t(pages) < page_time() * int64_t(pages);
}

bool RemotePages::Shared::is_over(PageFetch& fetch, Clock::time_point now) {
    if (fetch.finished) return true;
    const auto pages = int64_t(fetch.pages.size() - fetch.first);
    if (now <= fetch.asked_at + fetch.page_time * pages) return false;
    fetch.finished = true;
    if (fetch.began) { // otherwise others came first
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(fetch.page_time * pages).count();
        counts.late++;
        breaker.failed(now);
        warnings.add(fmt::format("{} is slower than computing here: {} of {} pages of a prompt came within {} ms; the others are "
                                 "computed here, and it is left alone for a while",
                                 options.place, fetch.asked - fetch.first, pages, ms));
    }
    return true;
}

void RemotePages::note_speed(uint64_t tokens, std::chrono::nanoseconds time) {
    const std::lock_guard lock(shared_->mutex);
    shared_->speed.note(tokens, time);
}

std::shared_ptr<PageFetch> RemotePages::fetch(std::string tenant, std::vector<PageHead> pages, uint32_t known) {
    const std::lock_guard lock(shared_->mutex);
    const auto now = Shared::Clock::now();
    if (shared_->breaker.is_probe_due(now)) shared_->breaker.probed(); // the next prompt is the probe
    if (known >= pages.size() || shared_->breaker.is_open()) return nullptr;
    if (!shared_->pays(pages.size() - known, now)) {
        shared_->counts.skipped++;
        return nullptr;
    }
    auto fetch = std::make_shared<PageFetch>(PageFetch{std::move(tenant), std::move(pages), known});
    fetch->asked_at = now;
    fetch->page_time = shared_->page_time();
    fetch->first = fetch->asked = known;
    shared_->fetches.push_back(fetch);
    shared_->changed.notify_all();
    return fetch;
}

std::optional<std::vector<std::byte>> RemotePages::take(PageFetch& fetch, std::chrono::milliseconds wait) {
    Shared::Lock lock(shared_->mutex);
    const auto until = Shared::Clock::now() + wait;
    const auto end = fetch.asked_at + fetch.page_time * int64_t(fetch.pages.size() - fetch.first) + 1ms;
    while (fetch.arrived.empty()) {
        const auto now = Shared::Clock::now();
        if (shared_->is_over(fetch, now) || now >= until) return std::nullopt;
        shared_->changed.wait_until(lock, std::min<Shared::Clock::time_point>(until, end));
    }
    auto content = std::move(fetch.arrived.front());
    fetch.arrived.pop_front();
    fetch.next++;
    shared_->changed.notify_all(); // there is room for another one
    return content;
}

bool RemotePages::is_coming(PageFetch& fetch) {
    const std::lock_guard lock(shared_->mutex);
    return !fetch.arrived.empty() || !shared_->is_over(fetch, Shared::Clock::now());
}

RemotePages::Statistics RemotePages::statistics() const {
    const std::lock_guard lock(shared_->mutex);
    Statistics now = shared_->counts;
    now.paused = shared_->breaker.is_open();
    return now;
}

std::vector<std::string> RemotePages::take_warnings() {
    const std::lock_guard lock(shared_->mutex);
    return shared_->warnings.take();
}

} // namespace tq
