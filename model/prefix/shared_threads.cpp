// The two threads of SharedPages: one reads, one writes, each by a connection of its own. The mutex is free only while a
// thread talks to the store, so all that it shares can have changed afterwards: a fetch may be finished, because nobody waits
// any more.
// - A store that fails or is late is left alone for a while (Breaker): reads and writes each have one. A probe, which opens
//   the connection, is what first touches the store again, so no request waits for a store that is still dead.
// - A page with wrong bytes is rejected, counts as a failure, and is remembered in `bad`: the writer then replaces it.
// - `present` has the names that the store is known to have, which spares writes. It is only as good as the connection. A new
//   one may lead to another store, or to one that was started again empty, so heard() forgets all but what waits to be
//   written.
// - A page that is missing ends the fetch of a prompt, because pages after it are of no use. Of states one is enough: the next
//   one is asked for until one is there.
// - If a write fails, all that waits is dropped: others would wait as long. It is offered again when its page is used again.
#include "base/error.h"
#include "base/error_text.h"
#include "base/printable.h"
#include "model/prefix/sent_page.h"
#include "model/prefix/shared_state.h"

namespace tq {
namespace {

using namespace std::chrono_literals;

constexpr auto probe_timeout = 1s;

// The text of an error, which may name what a store has said.
std::string reason_of(const std::exception& error) { return printable(error_text(error), 300); }

} // namespace

void SharedPages::Shared::probe(Lock& lock, Opened& opened, Breaker& breaker) {
    lock.unlock();
    std::string problem;
    try {
        opened.get(options).probe(Clock::now() + probe_timeout);
    } catch (const std::exception& error) {
        problem = reason_of(error);
    }
    lock.lock();
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

// The first that has room for what arrives. Those that nobody waits for any more are dropped.
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
    lock.unlock();
    std::optional<std::vector<std::byte>> page;
    std::string problem;
    size_t bytes = 0;
    bool rejected = false;
    try {
        page = opened.get(options).get(entry_of(head), max_bytes(head), began + fetch.page_time);
        if (page) {
            bytes = page->size();
            rejected = true;
            page = received_content(std::move(*page), head, layout, options.sign);
            rejected = false;
        }
    } catch (const std::exception& error) {
        problem = reason_of(error);
    }
    lock.lock();
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

// After a page that did not come, or was not what it should be. Where it was late, is_over() may have noticed that before.
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
    lock.unlock();
    std::string problem;
    bool written = false;
    size_t sent_bytes = 0;
    try {
        const std::vector<std::byte> page = sent_page(job.head, job.content, options.sign);
        sent_bytes = page.size();
        written = opened.get(options).put(entry_of(job.head), page, replace, deadline);
    } catch (const std::exception& error) {
        problem = reason_of(error);
    }
    lock.lock();
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
