// State of a batch, for metrics and people.
#pragma once
#include "model/prefix/statistics.h"
#include <cstdint>
#include <vector>

namespace tq::serving {

struct SlotStatus {
    bool busy = false;
    uint32_t cached_tokens = 0, prompt_tokens = 0, decoded_tokens = 0; // of its request: as in RequestTimings
    uint32_t tokens = 0;                                               // in its pages
    uint32_t pages = 0;
    std::vector<uint32_t> checkpoints{}; // Cache::checkpoints()
    uint64_t request = 0;                // counted from 1
};

struct Status {
    std::vector<SlotStatus> slots;
    uint32_t waiting = 0, running = 0;
    uint32_t pages = 0, free_pages = 0, spare_pages = 0; // spare: only the prefix cache has them
    uint64_t requests = 0, rejected = 0, cancelled = 0, failed = 0, preempted = 0, device_losses = 0; // so far
    uint64_t prompt_tokens = 0, cached_tokens = 0, decoded_tokens = 0, passes = 0;                    // so far
    uint64_t drafted_tokens = 0, accepted_tokens = 0; // so far: verified, and right
    uint64_t prompt_ns = 0, decode_ns = 0;            // of passes with a slice of a prompt; decode_ns: of the others
    PrefixStatistics found;
};

} // namespace tq::serving
