// A source of pages that this machine does not have: a store (shared_pages.h), or another machine (remote_pages.h). A source that
// is slow, dead or lying is a miss and no error. Pages are waited for as long as it would take to compute them here, and after a
// failure the source is left alone for a while.
#pragma once
#include "model/prefix/page_file.h"
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// The pages of one prompt that come from a source, one after the other. Pages from `next` on have not been taken over yet. If
// one_is_enough, these are states instead: they are asked for from `next` on until one is there.
struct PageFetch {
    const std::string tenant;
    const std::vector<PageHead> pages; // of the prompt, from its first page on; or states
    uint32_t next;
    const bool one_is_enough = false;

    // Only the thread that fetches uses these.
    std::chrono::steady_clock::time_point asked_at{};
    std::chrono::nanoseconds page_time{};                         // that a page may take
    uint32_t first = 0, asked = 0;                                // the first page to fetch; the one that is fetched, or is next
    std::optional<std::chrono::steady_clock::time_point> began{}; // when page `asked` was asked for
    std::deque<std::vector<std::byte>> arrived{};                 // contents from `next` on
    bool finished = false;                                        // no more will arrive
};

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
