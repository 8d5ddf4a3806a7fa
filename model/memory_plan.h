// What a model and its cache will take of a memory, computed before anything is loaded.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace tq {

// In bytes.
struct MemoryPlan {
    uint64_t weights = 0, kv_cache = 0, scratch = 0; // scratch: activations, the rotary table, staging
    uint64_t available = 0;
    uint64_t allocation_limit = UINT64_MAX; // a single part may have; `largest_part` has
    uint64_t largest_part = 0;

    uint64_t total() const { return weights + kv_cache + scratch; }
    bool fits() const { return total() <= available && largest_part <= allocation_limit; }
};

// The most tokens, at most `most`, for which plan(tokens) fits; 0 when not even one does. Plans grow with the tokens.
uint32_t largest_context(uint32_t most, const std::function<MemoryPlan(uint32_t context_size)>& plan);

// "it needs 812.4 MiB (weights 604.2, KV cache 29.0, scratch 179.2), and 512.0 MiB are available".
std::string describe(const MemoryPlan& plan);

} // namespace tq
