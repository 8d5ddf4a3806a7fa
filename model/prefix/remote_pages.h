// Pages of prompts that another, faster machine computes: pages that neither the caches of this machine nor a shared store have.
// Nothing that it does is an error: a slow, dead or lying machine is a miss, and a warning now and then. It has as long as this
// machine would take to compute the pages. A thread asks, for one prompt after the other.
#pragma once
#include "model/kv/page_layout.h"
#include "model/prefix/fetched_pages.h"
#include "model/prefix/page_signature.h"
#include "model/prefix/shared_store.h"
#include "model/prefix/statistics.h"

namespace tq {

// A request to another machine: for the pages from `known` on of a prompt of whole pages.
struct PageOrder {
    std::vector<uint32_t> ids;
    uint32_t known;
    size_t page_bytes; // of each (sent_page.h)
};
struct PageReceiver {
    std::function<bool(std::vector<std::byte> page)> page; // gets each, in order; false: no more are wanted
    std::function<bool()> keep_going;                      // to be asked several times a second; false: nobody waits any more
};
// Returns when all have come, or no more will. Throws Error.
using PageComputer = std::function<void(const PageOrder& order, const PageReceiver& receiver)>;

class RemotePages : public FetchedPages {
  public:
    struct Options {
        PageComputer compute;                            // called in the thread; empty: there is no other machine
        PageName owner;                                  // of pages on their way, which both machines must agree on
        PageSigner sign;                                 // empty: pages are not signed
        std::string place;                               // for sentences for people
        uint64_t max_waiting_bytes = 64 << 20;           // of pages that wait to be taken over
        std::chrono::milliseconds first_page_time{2000}; // that a page may take, as long as no prompt was run
        std::chrono::milliseconds warning_pause{60000};  // between two warnings
        std::chrono::milliseconds retry_pause{60000};    // before a machine is tried again that would take longer than this one
    };
    using Statistics = RemotePageStatistics;

    RemotePages(const Options& options, const PageLayout& layout);
    ~RemotePages();

    Statistics statistics() const;

  private:
    struct Shared;
    explicit RemotePages(std::shared_ptr<Shared> shared);
    const std::shared_ptr<Shared> shared_; // with the thread, which may outlive this if a connection hangs
};

} // namespace tq
