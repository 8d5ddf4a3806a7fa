// A store that several machines share. The caller's side never waits for it. A write is a job in a queue of bounded size, and is
// dropped if that is full; a read has a deadline. Only full pages with the bits of a cold run are shared, since nobody else would
// find others. One thread reads and one writes, each over a connection of its own. The mutex is free only while a thread talks to
// the store, so all that it shares can have changed afterwards: a fetch may be finished, because nobody waits any more.
// - A store that fails or is late is left alone for a while (Breaker): reads and writes each have one. A probe, which opens
//   the connection, is what first touches the store again, so no request waits for a store that is still dead.
// - A page with wrong bytes is rejected, counts as a failure, and is remembered in `bad`: the writer then replaces it.
// - `present` has the names that the store is known to have, which spares writes. It is forgotten after an hour, as pages expire
//   there; when a present page is used again, the writer confirms it. It is only as good as the connection. A new one may lead to
//   another store, or to one that was started again empty, so heard() forgets all but what waits to be written.
// - A page that is missing ends the fetch of a prompt, because pages after it are of no use. Of states one is enough: the next
//   one is asked for until one is there.
// - If a write fails, all that waits is dropped: others would wait as long. It is offered again when its page is used again.
#include "model/prefix/shared_pages.h"
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/fetched_state.h"
#include "model/prefix/sent_page.h"
#include <deque>
#include <set>
#include <utility>

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto shared_grace = 3s;        // for what waits to be written at the end
constexpr auto shared_memory = 1h;       // then pages that were there may have expired, or made room for others
constexpr auto min_page_time = 20ms;     // a computer that is faster needs no store
constexpr auto max_page_time = 10'000ms; // nobody waits longer for a page, however slow the computer
constexpr auto probe_timeout = 1s;

} // namespace

// State that SharedPages and its two threads share.
struct SharedPages::Shared final : FetchedPages::State {
    struct Job {
        PageHead head;
        std::vector<std::byte> content;
        size_t bytes; // in the store
    };

    // One thread's store, and the number of its connection that last answered.
    struct Opened {
        std::unique_ptr<SharedStore> store;
        uint64_t connection = 0;

        SharedStore& get(const Options& options) {
            if (!store) store = options.open();
            return *store;
        }
    };

    Shared(const Options& options, const PageLayout& layout, uint64_t max_state_bytes);

    bool accepts(uint64_t pages, Clock::time_point now) override;
    Clock::time_point deadline(const PageFetch& fetch) const override;
    void note_late(const PageFetch& fetch) override;

    void read_pages(); // the threads; with mutex free
    void write_pages();

    size_t page_bytes() const;                    // of a whole page in the store
    size_t max_bytes(const PageHead& head) const; // the same, or of a state

    const Options options;
    const PageLayout layout;
    const uint64_t max_state_bytes;
    // Guarded by mutex:
    Clock::time_point stop_at{}; // the end of waiting for the writer
    std::thread reader, writer;

    Breaker writes;
    std::deque<Job> jobs; // the first one is being written
    uint64_t waiting_bytes = 0;
    std::set<PageName> present, bad; // believed to be in the store, or waiting to be written; there, but not valid
    Clock::time_point present_since = Clock::now(), heard_at = Clock::now(); // heard_at: when the store last answered
    bool confirm = false; // the writer is to ask the store whether it is still there
    Statistics counts;

  private:
    void probe(Lock& lock, Opened& opened, Breaker& breaker);
    std::shared_ptr<PageFetch> next_fetch();
    void fetch_page(Lock& lock, Opened& opened, PageFetch& fetch);
    void end_get(PageFetch& fetch, Clock::time_point began, const std::string& problem, bool rejected);
    void write_page(Lock& lock, Opened& opened);
    void drop_jobs();
    void heard(Opened& opened);
};

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
    : State({options.first_page_time, min_page_time, max_page_time}, options.warning_pause), options(options), layout(layout),
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

void SharedPages::Shared::probe(Lock& lock, Opened& opened, Breaker& breaker) {
    const std::string problem = unlocked(lock, [&] { opened.get(options).probe(Clock::now() + probe_timeout); });
    if (problem.empty()) {
        heard(opened);
        breaker.probed();
    } else {
        breaker.failed(Clock::now());
        if (&breaker == &writes) drop_jobs();
        warnings.add(fmt::format("the shared prefix cache {} does not answer: {}", options.place, problem));
    }
    changed.notify_all();
}

// Returns the first fetch that has room for what arrives. Fetches that nobody waits for any more are dropped.
std::shared_ptr<PageFetch> SharedPages::Shared::next_fetch() {
    std::erase_if(fetches, [](const std::weak_ptr<PageFetch>& one) {
        const auto fetch = one.lock();
        return !fetch || fetch->finished;
    });
    for (const auto& one : fetches) {
        auto fetch = one.lock();
        if (!fetch || is_over(*fetch, Clock::now())) continue;
        if (fetch->arrived.empty() || (fetch->arrived.size() + 1) * page_bytes() <= options.max_waiting_bytes) return fetch;
    }
    return nullptr;
}

void SharedPages::Shared::read_pages() {
    Opened opened;
    Lock lock(mutex);
    bool is_new = true; // a probe opens the connection before it is needed
    while (!stopping) {
        if (std::exchange(is_new, false) || reads.is_probe_due(Clock::now())) {
            probe(lock, opened, reads);
        } else if (reads.is_open()) {
            changed.wait_until(lock, reads.probe_at());
        } else if (const auto fetch = next_fetch()) {
            fetch_page(lock, opened, *fetch);
        } else {
            changed.wait(lock);
        }
    }
}

void SharedPages::Shared::fetch_page(Lock& lock, Opened& opened, PageFetch& fetch) {
    const PageHead& head = fetch.pages[fetch.asked];
    const auto began = Clock::now();
    fetch.began = began;
    std::optional<std::vector<std::byte>> page;
    size_t bytes = 0;
    bool rejected = false;
    const std::string problem = unlocked(lock, [&] {
        page = opened.get(options).get(entry_of(head), max_bytes(head), began + fetch.page_time);
        if (page) {
            bytes = page->size();
            rejected = true;
            page = received_content(std::move(*page), head, layout, options.sign);
            rejected = false;
        }
    });
    counts.read_bytes += bytes;
    if (problem.empty() || rejected) heard(opened);
    if (!problem.empty()) {
        if (rejected) {
            present.erase(head.name);
            bad.insert(head.name);
        }
        end_get(fetch, began, problem, rejected);
    } else if (page) {
        present.insert(head.name);
        reads.succeeded();
        if (!fetch.finished) { // not too late
            counts.found++;
            if (fetch.one_is_enough) fetch.next = fetch.asked, fetch.finished = true;
            fetch.arrived.push_back(std::move(*page));
        }
        fetch.asked++;
    } else {
        reads.succeeded();
        counts.missed++;
        fetch.asked++;
        fetch.finished = !fetch.one_is_enough || fetch.asked == fetch.pages.size();
        if (fetch.one_is_enough)
            present.erase(head.name);
        else if (present.contains(head.name)) // those after it are of no use without it, and may be gone as well
            for (uint32_t i = fetch.asked - 1; i < fetch.pages.size(); i++) present.erase(fetch.pages[i].name);
    }
    fetch.began.reset();
    changed.notify_all();
}

// Ends the lookup of a page that did not come, or was not valid. If it was late, is_over() may have noticed that before.
void SharedPages::Shared::end_get(PageFetch& fetch, Clock::time_point began, const std::string& problem, bool rejected) {
    const auto now = Clock::now();
    if (!rejected && is_over(fetch, now)) return;
    fetch.finished = true;
    reads.failed(now);
    if (rejected) {
        counts.rejected++;
        warnings.add(fmt::format("a page of the shared prefix cache {} is not used: {}", options.place, problem));
    } else {
        (now < began + fetch.page_time ? counts.failed : counts.late)++;
        warnings.add(fmt::format("the shared prefix cache {} is left alone for a while: {}", options.place, problem));
    }
}

void SharedPages::Shared::write_pages() {
    Opened opened;
    Lock lock(mutex);
    for (confirm = true;;) { // connected to what the reader finds pages in
        if (stopping && (jobs.empty() || writes.is_open() || Clock::now() >= stop_at)) break;
        if (writes.is_probe_due(Clock::now()) || (confirm && !writes.is_open())) {
            confirm = false;
            probe(lock, opened, writes);
        } else if (writes.is_open()) {
            changed.wait_until(lock, writes.probe_at());
        } else if (!jobs.empty()) {
            write_page(lock, opened);
        } else {
            changed.wait(lock);
        }
    }
    drop_jobs();
}

// The store has answered. By a new connection it is perhaps another one, or was started again empty.
void SharedPages::Shared::heard(Opened& opened) {
    heard_at = Clock::now();
    const uint64_t now = opened.store->connections(), before = std::exchange(opened.connection, now);
    if (before == now || before == 0) return;
    present.clear();
    for (const Job& job : jobs) present.insert(job.head.name);
}

void SharedPages::Shared::drop_jobs() {
    for (const Job& job : jobs) present.erase(job.head.name);
    counts.not_written += jobs.size();
    waiting_bytes = 0;
    jobs.clear();
}

void SharedPages::Shared::write_page(Lock& lock, Opened& opened) {
    const Job& job = jobs.front(); // stays where it is: only this thread takes it out
    const bool replace = bad.contains(job.head.name);
    auto deadline = Clock::now() + options.write_timeout;
    if (stopping) deadline = std::min(deadline, stop_at);
    bool written = false;
    size_t sent_bytes = 0;
    const std::string problem = unlocked(lock, [&] {
        const std::vector<std::byte> page = sent_page(job.head, job.content, options.sign);
        sent_bytes = page.size();
        written = opened.get(options).put(entry_of(job.head), page, replace, deadline);
    });
    if (problem.empty()) {
        heard(opened);
        writes.succeeded();
        present.insert(job.head.name);
        bad.erase(job.head.name);
        counts.written += written ? 1 : 0;
        counts.written_bytes += written ? sent_bytes : 0;
        waiting_bytes -= job.bytes;
        jobs.pop_front();
    } else { // the others would wait as long
        writes.failed(Clock::now());
        warnings.add(fmt::format("the shared prefix cache {} stores no pages for a while: {}", options.place, problem));
        drop_jobs();
    }
    changed.notify_all();
}

} // namespace tq
