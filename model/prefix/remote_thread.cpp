// The thread of RemotePages.
#include "base/error.h"
#include "base/printable.h"
#include "model/cache.h"
#include "model/prefix/remote_state.h"
#include "model/prefix/sent_page.h"

namespace tq {

// One question to another machine, which computes the pages of a prompt and sends them as they are made. The machine knows this
// cache's owner but not its tenants. So names are made anew for the way, and what comes is checked against them
// (received_content()).
struct RemotePages::Shared::Asking {
    Shared& shared;
    const std::shared_ptr<PageFetch>& fetch; // which the thread holds once, and who waits for it
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
    bool is_wanted() const { return is_waited_for() && !shared.is_over(*fetch, Clock::now()); }
    bool keep_going() const {
        const Lock lock(shared.mutex);
        return is_wanted();
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
    while (is_wanted() && !fetch->arrived.empty() && !has_room())
        shared.changed.wait_for(lock, std::chrono::milliseconds(100)); // is_wanted() may change without a notice
    if (!is_wanted()) return false;
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
    lock.unlock();
    std::string problem;
    std::optional<Asking> asking;
    try {
        asking.emplace(*this, fetch);
        options.compute(asking->order(), {[&](std::vector<std::byte> page) { return asking->take(std::move(page)); },
                                          [&] { return asking->keep_going(); }});
    } catch (const std::exception& error) {
        problem = printable(error.what(), 300);
    }
    lock.lock();
    if (asking) end(*asking, problem);
    fetch->finished = true;
    changed.notify_all();
}

void RemotePages::Shared::end(Asking& asking, const std::string& problem) {
    PageFetch& fetch = *asking.fetch;
    const uint64_t wanted = fetch.pages.size() - fetch.first, came = fetch.asked - fetch.first;
    counts.missing += wanted - came;
    if (came > 0) measure(asking);
    if (is_over(fetch, Clock::now()) || !asking.is_waited_for()) return;
    if (!problem.empty()) {
        (asking.rejected ? counts.rejected : counts.failed)++;
        reads.failed(Clock::now());
        warnings.add(fmt::format("{} is left alone for a while, and prompts are computed here: {}", options.place, problem));
    } else if (came < wanted) {
        counts.failed++;
        reads.failed(Clock::now());
        warnings.add(
            fmt::format("{} sent {} of {} pages of a prompt; the others are computed here, and it is left alone for a while",
                        options.place, came, wanted));
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
