// A thread asks another machine for the pages of prompts, one prompt after the other (run()). Callers wait for a PageFetch with
// take(); nobody waits longer than this machine would take to compute the pages, so a slow machine costs at most that time once.
// accepts() decides before: it compares the other machine's last measured times (until the first page, and per page) with this
// one's own; after retry_pause it tries again, because a measurement gets old. Pages arrive in order and are checked one by one
// (received_content()). A page that is damaged, not signed or not the right one ends the question. After a failure no machine is
// asked for a while (`reads`, a circuit breaker); the next prompt then is the probe. At most max_waiting_bytes of pages wait to
// be taken over; beyond that the thread stops reading. The destructor waits remote_grace for the thread, and then leaves it
// behind with what it shares.
#include "model/prefix/remote_pages.h"
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/fetched_state.h"
#include "model/prefix/sent_page.h"
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto remote_grace = 2s;            // for a connection at the end
constexpr auto min_remote_page_time = 20ms;  // a computer that is faster needs no other
constexpr auto patient_page_time = 60'000ms; // of a very slow one

} // namespace

// State that RemotePages and its thread share.
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
    // Times of the other machine, as last measured: until its first page is under way, and then for each page.
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
    : State({options.first_page_time, min_remote_page_time, patient_page_time}, options.warning_pause), options(options),
      layout(layout) {}

// Whether, by the last measurement, the other machine delivers these pages sooner than this one computes them. An old measurement
// does not count.
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

// One question to another machine, which computes the pages of a prompt and sends them as they are made. The machine knows this
// cache's owner but not its tenants. So the pages have other names in transit, and received pages are checked against these
// (received_content()).
struct RemotePages::Shared::Asking {
    Shared& shared;
    const std::shared_ptr<PageFetch>& fetch; // held by the thread and by those who wait for it
    std::vector<PageHead> heads;             // of its pages on their way: those of a caller's tenant have other names
    bool rejected = false;
    Clock::time_point first_at{}, last_at{}; // when pages came

    Asking(Shared& shared, const std::shared_ptr<PageFetch>& fetch) : shared(shared), fetch(fetch) {
        PageName parent = shared.options.owner;
        for (const PageHead& page : fetch->pages) {
            heads.push_back(make_page_head(shared.options.owner, parent, page.ids, page_tokens));
            parent = heads.back().name;
        }
    }
    PageOrder order() const {
        PageOrder order{{}, fetch->first, sent_page_bytes(shared.layout, bool(shared.options.sign))};
        for (const PageHead& page : fetch->pages) order.ids.insert(order.ids.end(), page.ids.begin(), page.ids.end());
        return order;
    }
    // With the mutex locked: whether somebody waits for more.
    bool is_waited_for() const { return !shared.stopping && fetch.use_count() > 1; }
    bool is_requested() const { return is_waited_for() && !shared.is_over(*fetch, Clock::now()); }
    bool keep_going() const {
        const Lock lock(shared.mutex);
        return is_requested();
    }
    bool take(std::vector<std::byte> page);
};

bool RemotePages::Shared::Asking::take(std::vector<std::byte> page) {
    const size_t bytes = page.size(), number = fetch->asked; // which only this thread changes
    rejected = true;
    if (number == heads.size()) fail("it sent more than the {} pages that it was asked for", number - fetch->first);
    auto content = received_content(std::move(page), heads[number], shared.layout, shared.options.sign);
    rejected = false;
    Lock lock(shared.mutex);
    shared.counts.read_bytes += bytes;
    const auto has_room = [&] { return (fetch->arrived.size() + 1) * bytes <= shared.options.max_waiting_bytes; };
    while (is_requested() && !fetch->arrived.empty() && !has_room())
        shared.changed.wait_for(lock, std::chrono::milliseconds(100)); // is_requested() may change without a notice
    if (!is_requested()) return false;
    last_at = Clock::now();
    if (fetch->asked == fetch->first) first_at = last_at;
    fetch->asked++;
    fetch->arrived.push_back(std::move(content));
    shared.counts.found++;
    shared.changed.notify_all();
    return true;
}

// The first that somebody waits for.
std::shared_ptr<PageFetch> RemotePages::Shared::next_fetch() {
    while (!fetches.empty()) {
        auto fetch = fetches.front().lock();
        fetches.erase(fetches.begin());
        if (!fetch || is_over(*fetch, Clock::now())) continue;
        if (!reads.is_open()) return fetch;
        fetch->finished = true; // asked for before the failure
        changed.notify_all();
    }
    return nullptr;
}

void RemotePages::Shared::run() {
    Lock lock(mutex);
    while (!stopping) {
        if (const auto fetch = next_fetch())
            ask(lock, fetch);
        else
            changed.wait(lock);
    }
}

void RemotePages::Shared::ask(Lock& lock, const std::shared_ptr<PageFetch>& fetch) {
    fetch->began = Clock::now();
    counts.asked++;
    std::optional<Asking> asking;
    const std::string problem = unlocked(lock, [&] {
        asking.emplace(*this, fetch);
        options.compute(asking->order(), {[&](std::vector<std::byte> page) { return asking->take(std::move(page)); },
                                          [&] { return asking->keep_going(); }});
    });
    if (asking) end(*asking, problem);
    fetch->finished = true;
    changed.notify_all();
}

void RemotePages::Shared::end(Asking& asking, const std::string& problem) {
    PageFetch& fetch = *asking.fetch;
    const uint64_t requested = fetch.pages.size() - fetch.first, came = fetch.asked - fetch.first;
    counts.missing += requested - came;
    if (came > 0) measure(asking);
    if (is_over(fetch, Clock::now()) || !asking.is_waited_for()) return;
    if (!problem.empty()) {
        (asking.rejected ? counts.rejected : counts.failed)++;
        reads.failed(Clock::now());
        warnings.add(fmt::format("{} is left alone for a while, and prompts are computed here: {}", options.place, problem));
    } else if (came < requested) {
        counts.failed++;
        reads.failed(Clock::now());
        warnings.add(
            fmt::format("{} sent {} of {} pages of a prompt; the others are computed here, and it is left alone for a while",
                        options.place, came, requested));
    } else {
        reads.succeeded();
    }
}

void RemotePages::Shared::measure(const Asking& asking) {
    const PageFetch& fetch = *asking.fetch;
    const auto pages = int64_t(fetch.asked - fetch.first);
    const auto first = asking.first_at - *fetch.began;
    measured_at = Clock::now();
    if (pages > 1) remote_page_time = (asking.last_at - asking.first_at) / (pages - 1);
    if (!remote_page_time) remote_page_time = first;
    remote_start = std::max<std::chrono::nanoseconds>(first - *remote_page_time, std::chrono::nanoseconds(0));
}

} // namespace tq
