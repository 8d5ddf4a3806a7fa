#include "model/prefix/remote_pages.h"
#include "model/prefix/remote_state.h"
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto remote_grace = 2s;            // for a connection at the end
constexpr auto shortest_page_time = 20ms;    // a computer that is faster needs no other
constexpr auto patient_page_time = 60'000ms; // of a very slow one

} // namespace

RemotePages::RemotePages(const Options& options, const PageLayout& layout)
    : RemotePages(std::make_shared<Shared>(options, layout)) {}

RemotePages::RemotePages(std::shared_ptr<Shared> shared) : FetchedPages(shared), shared_(std::move(shared)) {
    shared_->asker = Shared::thread_of(shared_, &Shared::run);
}

RemotePages::~RemotePages() {
    Shared::Lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    lock.unlock();
    shared_->join({&shared_->asker}, Shared::Clock::now() + remote_grace);
}

RemotePages::Shared::Shared(const Options& options, const PageLayout& layout)
    : State({options.first_page_time, shortest_page_time, patient_page_time}, options.warning_pause), options(options),
      layout(layout) {}

// Whether what is known of the other machine says that so many pages are there sooner than here. What it took once is not taken
// for the truth for ever.
bool RemotePages::Shared::pays(uint64_t pages, Clock::time_point now) const {
    if (!remote_page_time || now > measured_at + options.retry_pause) return true;
    return remote_start + *remote_page_time * int64_t(pages) < page_time() * int64_t(pages);
}

bool RemotePages::Shared::accepts(uint64_t pages, Clock::time_point now) {
    if (reads.is_probe_due(now)) reads.probed(); // the next prompt is the probe
    if (reads.is_open()) return false;
    const bool yes = pays(pages, now);
    counts.skipped += yes ? 0 : 1;
    return yes;
}

RemotePages::Shared::Clock::time_point RemotePages::Shared::deadline(const PageFetch& fetch) const {
    return fetch.asked_at + time_of_all(fetch);
}

void RemotePages::Shared::note_late(const PageFetch& fetch) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time_of_all(fetch)).count();
    counts.late++;
    warnings.add(fmt::format("{} is slower than computing here: {} of {} pages of a prompt came within {} ms; the others are "
                             "computed here, and it is left alone for a while",
                             options.place, fetch.asked - fetch.first, fetch.pages.size() - fetch.first, ms));
}

RemotePages::Statistics RemotePages::statistics() const {
    const std::lock_guard lock(shared_->mutex);
    Statistics now = shared_->counts;
    now.paused = shared_->reads.is_open();
    return now;
}

} // namespace tq
