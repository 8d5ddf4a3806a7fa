// The memory that a model and its cache will need, computed before anything is loaded.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace tq {

// Sizes in bytes.
struct MemoryPlan {
    uint64_t weights = 0, kv_cache = 0, scratch = 0; // scratch: activations, the rotary table, staging
    uint64_t mapped = 0;                             // of `weights`: used in place in mapped files, need not stay in memory
    uint64_t available = 0;
    uint64_t allocation_limit = UINT64_MAX; // the limit of a part that cannot be sliced; `largest_part` is that part's size
    uint64_t largest_part = 0;
    bool parts_fit = true, parts_run = true; // of the sum of several devices: whether each one's part fits, and runs

    uint64_t total() const { return weights + kv_cache + scratch; }
    uint64_t needed() const { return total() - mapped; }
    bool fits() const { return total() <= available && largest_part <= allocation_limit && parts_fit; }
    // Fits, or would without the mapped weights, which are then read from their files whenever they are needed.
    bool runs() const { return needed() <= available && largest_part <= allocation_limit && parts_run; }
};

// Returns the maximum number of tokens, at most `max`, for which plan(tokens) fits. If not even one token fits, returns the
// maximum for which the model runs from its file, or 0. Plans grow with the tokens.
uint32_t largest_context(uint32_t max, const std::function<MemoryPlan(uint32_t context_size)>& plan);

// Returns "it needs 812.4 MiB (weights 604.2, KV cache 29.0, scratch 179.2), and 512.0 MiB are available"; of weights those that
// must be in memory.
std::string describe(const MemoryPlan& plan);

} // namespace tq
