#include "model/prefix/shared_pages.h"
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/sent_page.h"
#include "model/prefix/shared_state.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto shared_grace = 3s;            // for what waits to be written at the end
constexpr auto shared_memory = 1h;           // then pages that were there may have expired
constexpr auto least_page_time = 20ms;       // a computer that is faster needs no store
constexpr auto longest_page_time = 10'000ms; // nobody waits longer for a page, however slow the computer

} // namespace

SharedPages::SharedPages(const Options& options, const PageLayout& layout) : shared_(std::make_shared<Shared>(options, layout)) {
    shared_->reader = std::thread([shared = shared_] { shared->read_pages(); });
    shared_->writer = std::thread([shared = shared_] { shared->write_pages(); });
}

SharedPages::~SharedPages() {
    Shared::Lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->stop_at = Shared::Clock::now() + shared_grace;
    shared_->changed.notify_all();
    const auto both = [&] { return shared_->reader_done && shared_->writer_done; };
    const bool ended = shared_->changed.wait_until(lock, shared_->stop_at + 500ms, both);
    lock.unlock();
    for (std::thread* thread : {&shared_->reader, &shared_->writer}) ended ? thread->join() : thread->detach();
}

size_t SharedPages::Shared::page_bytes() const { return sent_page_bytes(layout, bool(options.sign)); }

std::chrono::nanoseconds SharedPages::Shared::page_time() const {
    const auto time = speed.page_time();
    return time ? std::clamp<std::chrono::nanoseconds>(*time, least_page_time, longest_page_time) : options.first_page_time;
}

bool SharedPages::Shared::is_over(PageFetch& fetch, Clock::time_point now) {
    if (fetch.finished) return true;
    if (fetch.began && now > *fetch.began + fetch.page_time) {
        counts.late++;
        reads.failed(now);
        warnings.add(
            fmt::format("the shared prefix cache {} is slower than computing: a page did not come within {} ms; it is left "
                        "alone for a while",
                        options.place, std::chrono::duration_cast<std::chrono::milliseconds>(fetch.page_time).count()));
        fetch.finished = true;
    } else if (!fetch.began) { // perhaps others come first, for longer than all its pages are worth
        const auto pages = int64_t(fetch.pages.size() - fetch.first);
        fetch.finished = reads.is_open() || fetch.asked == fetch.pages.size() || now > fetch.asked_at + fetch.page_time * pages;
    }
    return fetch.finished;
}

void SharedPages::note_speed(uint64_t tokens, std::chrono::nanoseconds time) {
    const std::lock_guard lock(shared_->mutex);
    shared_->speed.note(tokens, time);
}

std::shared_ptr<PageFetch> SharedPages::fetch(std::string tenant, std::vector<PageHead> pages, uint32_t known) {
    const std::lock_guard lock(shared_->mutex);
    if (known >= pages.size() || shared_->reads.is_open()) return nullptr;
    auto fetch = std::make_shared<PageFetch>(PageFetch{std::move(tenant), std::move(pages), known});
    fetch->asked_at = Shared::Clock::now();
    fetch->page_time = shared_->page_time();
    fetch->first = fetch->asked = known;
    shared_->fetches.push_back(fetch);
    shared_->changed.notify_all();
    return fetch;
}

std::optional<std::vector<std::byte>> SharedPages::take(PageFetch& fetch, std::chrono::milliseconds wait) {
    Shared::Lock lock(shared_->mutex);
    const auto until = Shared::Clock::now() + wait;
    while (fetch.arrived.empty()) {
        const auto now = Shared::Clock::now();
        if (shared_->is_over(fetch, now) || now >= until) return std::nullopt;
        shared_->changed.wait_until(lock, fetch.began ? std::min(until, *fetch.began + fetch.page_time + 1ms) : until);
    }
    auto content = std::move(fetch.arrived.front());
    fetch.arrived.pop_front();
    fetch.next++;
    shared_->changed.notify_all(); // there is room for another one
    return content;
}

bool SharedPages::is_coming(PageFetch& fetch) {
    const std::lock_guard lock(shared_->mutex);
    return !fetch.arrived.empty() || !shared_->is_over(fetch, Shared::Clock::now());
}

bool SharedPages::wants(const PageHead& head, bool last) {
    if (head.tokens() != page_tokens || head.cold != page_tokens) return false;
    const std::lock_guard lock(shared_->mutex);
    const auto now = Shared::Clock::now();
    if (now > shared_->present_since + shared_memory) {
        shared_->present.clear();
        shared_->present_since = now;
    }
    if (shared_->present.contains(head.name)) return false;
    const bool has_room =
        shared_->jobs.empty() || shared_->waiting_bytes + shared_->page_bytes() <= shared_->options.max_waiting_bytes;
    if (has_room && !shared_->writes.is_open()) return true;
    shared_->counts.not_written += last ? 1 : 0;
    return false;
}

void SharedPages::write(const PageHead& head, std::vector<std::byte> content) {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->present.insert(head.name).second) return;
    shared_->waiting_bytes += shared_->page_bytes();
    shared_->jobs.push_back({head, std::move(content)});
    shared_->changed.notify_all();
}

void SharedPages::flush() {
    Shared::Lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] { return shared_->jobs.empty(); });
}

SharedPages::Statistics SharedPages::statistics() const {
    const std::lock_guard lock(shared_->mutex);
    Statistics now = shared_->counts;
    now.reads_paused = shared_->reads.is_open();
    now.writes_paused = shared_->writes.is_open();
    return now;
}

std::vector<std::string> SharedPages::take_warnings() {
    const std::lock_guard lock(shared_->mutex);
    return shared_->warnings.take();
}

} // namespace tq
