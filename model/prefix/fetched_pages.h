// A source of pages that this machine does not have: a store (shared_pages.h), or another machine (remote_pages.h). A source that
// is slow, dead or lying is a miss and no error. Pages are waited for as long as it would take to compute them here, and after a
// failure the source is left alone for a while.
#pragma once
#include "model/prefix/page_fetch.h"
#include <memory>

namespace tq {

class FetchedPages {
  public:
    FetchedPages(const FetchedPages&) = delete;
    FetchedPages& operator=(const FetchedPages&) = delete;

    // Notes the time that `tokens` tokens of a prompt took to run: a page is waited for as long as it takes to compute.
    void note_speed(uint64_t tokens, std::chrono::nanoseconds time);

    // Begins to fetch the pages from `known` on, one after the other. Returns null if the source is left alone.
    std::shared_ptr<PageFetch> fetch(std::string tenant, std::vector<PageHead> pages, uint32_t known);
    // Begins to look for these states until one is there, which would spare `tokens` tokens. take() then returns the state
    // fetch.next - 1. Returns null as above.
    std::shared_ptr<PageFetch> fetch_state(std::string tenant, std::vector<PageHead> states, uint32_t tokens);
    // Returns the content of the next page; waits for it at most `wait`. Returns nullopt if it has not come.
    std::optional<std::vector<std::byte>> take(PageFetch& fetch, std::chrono::milliseconds wait);
    // Returns whether more is to come: not after a miss, nor after the time that the pages are worth.
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
