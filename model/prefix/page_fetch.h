// The pages of one prompt that come from elsewhere, one after the other: from a store (shared_pages.h), or another machine
// (remote_pages.h). Or states, one of which is enough: they are asked for from `next` on until one is there.
#pragma once
#include "model/prefix/page_file.h"
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// The pages from `next` on are still to be taken over.
struct PageFetch {
    const std::string tenant;
    const std::vector<PageHead> pages; // of the prompt, from its first page on; or states
    uint32_t next;
    const bool one_is_enough = false;

    // Only the thread that fetches uses these.
    std::chrono::steady_clock::time_point asked_at{};
    std::chrono::nanoseconds page_time{};                         // that a page may take
    uint32_t first = 0, asked = 0;                                // the first page to be fetched, and the one that is, or is next
    std::optional<std::chrono::steady_clock::time_point> began{}; // when page `asked` was asked for
    std::deque<std::vector<std::byte>> arrived{};                 // contents from `next` on
    bool finished = false;                                        // no more will arrive
};

} // namespace tq
