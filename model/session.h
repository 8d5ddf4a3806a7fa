// One conversation with one model: token ids in, token ids out. Reuses the cache for the common prefix of the next prompt and
// the last one, and runs only the rest.
#pragma once
#include "model/forward.h"
#include "model/sampling/sampler.h"
#include <functional>
#include <string>
#include <vector>

namespace tq {

class Speculation;

enum class Stop { end_of_generation, length, context_full, memory_full, interrupted };

// Rates as in llama.cpp: reused tokens count as no work, and the first new token belongs to the prompt.
struct Timings {
    uint32_t reused_tokens = 0; // of the prompt, found in the cache
    uint32_t prompt_tokens = 0; // of the prompt, run
    uint64_t prompt_ns = 0;
    uint32_t decoded_tokens = 0;  // run after the prompt, one at a time or, where they were drafted, several
    uint64_t decode_ns = 0;       // of those, with the sampling after each
    uint32_t drafted_tokens = 0;  // that were verified
    uint32_t accepted_tokens = 0; // of those, the ones that were right

    double prompt_per_second() const { return prompt_ns == 0 ? 0 : double(prompt_tokens) * 1e9 / double(prompt_ns); }
    double decoded_per_second() const { return decode_ns == 0 ? 0 : double(decoded_tokens) * 1e9 / double(decode_ns); }
};

struct GenerateOptions {
    uint32_t max_tokens = UINT32_MAX;
    std::function<bool(uint32_t id)> is_end;                      // true for a token that ends the answer and is not part of it
    std::function<void(uint32_t id)> on_token;                    // called with each token of the answer when it is known
    std::function<bool()> interrupted;                            // called between tokens and between blocks of the prompt
    std::function<void(uint32_t done, uint32_t total)> on_prompt; // called after each block of the prompt
    std::function<void()> after_prompt;                           // called when all of it is in the cache, before new tokens
    Speculation* speculation = nullptr;                           // drafts tokens; the answer is the same without
};

struct Generated {
    std::vector<uint32_t> ids;
    Stop stop = Stop::length;
    Timings timings;
    std::string reason; // for memory_full: the numbers
};

class Session {
  public:
    explicit Session(Forward& forward) : forward_(forward) {}

    // Throws Error with the numbers when the prompt is empty or exceeds the context.
    void require_fits(std::span<const uint32_t> prompt) const;

    // Returns the logits [vocab_size] after the last token of the prompt; valid until the next call. Stopped by `progress`,
    // which counts the tokens not found in the cache: returns an empty span, and the tokens run so far stay in the cache.
    // Checks require_fits first.
    std::span<const float> prefill(std::span<const uint32_t> prompt, const Progress& progress = {});

    // Continues the prompt until the answer ends, is interrupted, or max_tokens, the context or memory for it are used up.
    // Throws OutOfMemory when there is none for the prompt itself.
    // Tokens may be sampled by the device ahead of those that the caller has seen, or drafted (model/decoder.h); the answer, the
    // calls, the cached tokens and the sampler's state are the same as without.
    Generated generate(std::span<const uint32_t> prompt, Sampler& sampler, const GenerateOptions& options);

    // Returns the content of the cache for the tokens cached_ids(): see Forward::stored().
    StoredSide stored(uint32_t layer, KvSide side);
    // Replaces the content of the cache with tokens and the data that stored() returned for them. Throws as Forward::restore()
    // does; the cache is then empty.
    void restore(std::vector<uint32_t> ids, const StoredSource& source);

    const std::vector<uint32_t>& cached_ids() const { return ids_; }
    const Timings& timings() const { return timings_; } // of the latest prefill or generate
    Forward& forward() { return forward_; }

  private:
    bool begin_speculation(std::span<const uint32_t> prompt, const GenerateOptions& options);
    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress);

    Forward& forward_;
    std::vector<uint32_t> ids_; // of the tokens in the cache that are known to be good
    Timings timings_;
};

} // namespace tq
