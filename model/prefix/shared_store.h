// Interface of a place of pages that several machines use: the tier below the disk. Its implementations are in
// model/prefix/store/. Its replies are not trusted, but checked (shared_pages.h).
#pragma once
#include "model/prefix/page_directory.h"
#include <chrono>

namespace tq {

class SharedStore {
  public:
    using Clock = std::chrono::steady_clock;
    virtual ~SharedStore() = default;

    // Returns the bytes of a page, which count as used now; nullopt if there is none, or it has expired. Throws Error if the
    // store did not answer by the deadline, or has more than `max_bytes`, for which no memory is taken.
    virtual std::optional<std::vector<std::byte>> get(const PageEntry& page, size_t max_bytes, Clock::time_point deadline) = 0;

    // Keeps a page. Returns false if there is one of that name already, which then counts as used now, unless `replace`.
    // Throws Error if the page was not kept by the deadline.
    virtual bool put(const PageEntry& page, std::span<const std::byte> bytes, bool replace, Clock::time_point deadline) = 0;

    // Throws Error if the store does not answer by the deadline.
    virtual void probe(Clock::time_point deadline) = 0;

    // Number of connections so far. A store behind a new connection may have none of the pages that were kept before.
    virtual uint64_t connections() const { return 0; }
};

} // namespace tq
