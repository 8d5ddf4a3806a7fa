// The caller's side of a store that several machines share (shared_threads.cpp has the two threads, one that reads and one that
// writes). Nothing here waits for the store. What is to be written is a job in a queue of bounded size, and is dropped if that is
// full; what is to be read has a deadline.
// `present` has the names of pages that are known to be in the store, so that they are not written again. It is forgotten after
// an hour, as pages expire there; when a present page is used again, the writer confirms it.
// Only full pages with the bits of a cold run are shared, since others would be found by nobody else.
#include "model/prefix/shared_pages.h"
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/sent_page.h"
#include "model/prefix/shared_state.h"
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto shared_grace = 3s;            // for what waits to be written at the end
constexpr auto shared_memory = 1h;           // then pages that were there may have expired, or made room for others
constexpr auto min_page_time = 20ms;         // a computer that is faster needs no store
constexpr auto longest_page_time = 10'000ms; // nobody waits longer for a page, however slow the computer

} // namespace

SharedPages::SharedPages(const Options& options, const PageLayout& layout, uint64_t max_state_bytes)
    : SharedPages(std::make_shared<Shared>(options, layout, max_state_bytes)) {}

SharedPages::SharedPages(std::shared_ptr<Shared> shared) : FetchedPages(shared), shared_(std::move(shared)) {
    shared_->reader = Shared::thread_of(shared_, &Shared::read_pages);
    shared_->writer = Shared::thread_of(shared_, &Shared::write_pages);
}

SharedPages::~SharedPages() {
    Shared::Lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->stop_at = Shared::Clock::now() + shared_grace;
    shared_->changed.notify_all();
    lock.unlock();
    shared_->join({&shared_->reader, &shared_->writer}, shared_->stop_at + 500ms);
}

SharedPages::Shared::Shared(const Options& options, const PageLayout& layout, uint64_t max_state_bytes)
    : State({options.first_page_time, min_page_time, longest_page_time}, options.warning_pause), options(options), layout(layout),
      max_state_bytes(max_state_bytes) {}

size_t SharedPages::Shared::page_bytes() const { return sent_page_bytes(layout, bool(options.sign)); }

size_t SharedPages::Shared::max_bytes(const PageHead& head) const {
    if (head.kind == RecordKind::page) return page_bytes();
    return page_bytes() - layout.bytes(page_tokens) + max_state_bytes;
}

bool SharedPages::Shared::accepts(uint64_t, Clock::time_point) { return !reads.is_open(); }

SharedPages::Shared::Clock::time_point SharedPages::Shared::deadline(const PageFetch& fetch) const {
    return fetch.began ? *fetch.began + fetch.page_time : fetch.asked_at + time_of_all(fetch);
}

void SharedPages::Shared::note_late(const PageFetch& fetch) {
    counts.late++;
    warnings.add(fmt::format("the shared prefix cache {} is slower than computing: a page did not come within {} ms; it is left "
                             "alone for a while",
                             options.place, std::chrono::duration_cast<std::chrono::milliseconds>(fetch.page_time).count()));
}

bool SharedPages::wants(const PageHead& head, bool last) {
    if (head.tokens() != page_tokens || head.cold != page_tokens) return false;
    const std::lock_guard lock(shared_->mutex);
    const auto now = Shared::Clock::now();
    if (now > shared_->present_since + shared_memory) {
        shared_->present.clear();
        shared_->present_since = now;
    }
    if (shared_->present.contains(head.name)) {
        if (now > shared_->heard_at + shared_->options.confirm_pause) {
            shared_->confirm = true;
            shared_->changed.notify_all();
        }
        return false;
    }
    // Beside pages, which a state follows, one state may wait that has more bytes than may wait.
    const uint64_t bytes = shared_->max_bytes(head),
                   max = std::max(shared_->options.max_waiting_bytes, bytes + shared_->page_bytes());
    const bool has_room = shared_->jobs.empty() || shared_->waiting_bytes + bytes <= max;
    if (has_room && !shared_->writes.is_open()) return true;
    shared_->counts.not_written += last ? 1 : 0;
    return false;
}

void SharedPages::write(const PageHead& head, std::vector<std::byte> content) {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->present.insert(head.name).second) return;
    const size_t bytes = shared_->max_bytes(head);
    shared_->waiting_bytes += bytes;
    shared_->jobs.push_back({head, std::move(content), bytes});
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

} // namespace tq
