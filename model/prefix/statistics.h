// Statistics of a prefix cache, for metrics and people.
#pragma once
#include <cstdint>
#include <optional>

namespace tq {

// The store that other machines use, too (shared_pages.h), since the cache was made.
struct SharedPageStatistics {
    uint64_t found = 0, missed = 0; // lookups of a page
    uint64_t late = 0, failed = 0;  // not there in time; an error of the store
    uint64_t rejected = 0;          // pages that were damaged, not what they were asked for, or not signed by the key
    uint64_t written = 0, not_written = 0;
    uint64_t read_bytes = 0, written_bytes = 0;
    bool reads_paused = false, writes_paused = false; // after failures
};

// The other machine that computes pages (remote_pages.h), since the cache was made.
struct RemotePageStatistics {
    uint64_t asked = 0, skipped = 0; // prompts; skipped: the other machine would have taken longer
    uint64_t found = 0, missing = 0; // pages: that came, and that did not
    uint64_t late = 0, failed = 0;   // prompts: not all was there in time; an error
    uint64_t rejected = 0;           // questions that ended because a page was damaged, another one, or not signed by the key
    uint64_t read_bytes = 0;
    bool paused = false; // after a failure
};

struct PrefixStatistics {
    uint64_t device_pages = 0, memory_pages = 0, memory_states = 0, memory_bytes = 0;  // now
    uint64_t device_tokens = 0, memory_tokens = 0, disk_tokens = 0, shared_tokens = 0; // of all prompts, found there
    uint64_t remote_tokens = 0;                                                        // that another machine has computed
    uint64_t memory_states_found = 0, disk_states_found = 0, shared_states_found = 0;  // with which beginnings were found
    std::optional<SharedPageStatistics> shared{};
    std::optional<RemotePageStatistics> remote{};
};

} // namespace tq
