// The prefix cache's pages in a store that other machines use, too (shared_store.h), and the states that follow them. Nothing
// that the store does is an error: a slow, dead, full or lying store is a miss, and a warning now and then. Only whole pages of
// cold tokens are shared. One thread
// reads and another writes, so that no caller waits for the store but for a page that it has asked for, and for that not longer
// than it would take to compute the page.
#pragma once
#include "model/kv/page_layout.h"
#include "model/prefix/fetched_pages.h"
#include "model/prefix/page_signature.h"
#include "model/prefix/shared_store.h"
#include "model/prefix/statistics.h"

namespace tq {

class SharedPages : public FetchedPages {
  public:
    struct Options {
        // Opens the store; called in each of the two threads, which alone use the returned object. May throw Error.
        std::function<std::unique_ptr<SharedStore>()> open; // empty: none
        PageSigner sign;                                    // empty: pages are not signed
        std::string place;                                  // for sentences for people
        uint64_t max_waiting_bytes = 64 << 20;              // of pages to be written, and of pages that wait to be taken over
        std::chrono::milliseconds write_timeout{10000};     // for a page
        std::chrono::milliseconds first_page_time{250};     // that a page may take, as long as no prompt was run
        std::chrono::milliseconds warning_pause{60000};     // between two warnings
        std::chrono::milliseconds confirm_pause{10000};     // of a silent store, before it is asked whether it is still there
    };
    using Statistics = SharedPageStatistics;

    // max_state_bytes: of a state's content.
    SharedPages(const Options& options, const PageLayout& layout, uint64_t max_state_bytes = 0);
    ~SharedPages(); // gives what waits to be written a few seconds

    // Returns false if the store is believed to have the page or state already, so that it need not be written now. `last`: it
    // will not be asked again.
    bool wants(const PageHead& head, bool last);
    void write(const PageHead& head, std::vector<std::byte> content);
    void flush(); // returns when nothing waits to be written

    Statistics statistics() const;

  private:
    struct Shared;
    explicit SharedPages(std::shared_ptr<Shared> shared);
    const std::shared_ptr<Shared> shared_; // with the threads, which may outlive this if the store hangs
};

} // namespace tq
