// Where the pages of a prompt may come from that this machine has not: a store (shared_pages.h), or another machine
// (remote_pages.h). What is slow, dead or lying there is no error, but a miss: pages are waited for as long as it would take to
// compute them here, and after a failure nothing is asked for a while.
#pragma once
#include "model/prefix/page_fetch.h"
#include <memory>

namespace tq {

class FetchedPages {
  public:
    FetchedPages(const FetchedPages&) = delete;
    FetchedPages& operator=(const FetchedPages&) = delete;

    // So many tokens of a prompt took so long: what a page is worth.
    void note_speed(uint64_t tokens, std::chrono::nanoseconds time);

    // Begins to fetch the pages from `known` on, one after the other. Null where the source is left alone.
    std::shared_ptr<PageFetch> fetch(std::string tenant, std::vector<PageHead> pages, uint32_t known);
    // Begins to look for these states until one is there, which would spare so many tokens. take() then gives that of
    // fetch.next - 1. Null as above.
    std::shared_ptr<PageFetch> fetch_state(std::string tenant, std::vector<PageHead> states, uint32_t tokens);
    // Returns the content of the next page, and waits for it at most so long. Nothing where it has not come yet.
    std::optional<std::vector<std::byte>> take(PageFetch& fetch, std::chrono::milliseconds wait);
    // Whether more is to come: not after a miss, nor when the time is over that the pages are worth.
    bool is_coming(PageFetch& fetch);

    std::vector<std::string> take_warnings();

  protected:
    struct State;
    explicit FetchedPages(std::shared_ptr<State> state) : state_(std::move(state)) {}
    ~FetchedPages() = default;

  private:
    std::shared_ptr<PageFetch> begin(PageFetch fetch, uint32_t pages);

    const std::shared_ptr<State> state_;
};

} // namespace tq
