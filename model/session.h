// A session is one conversation with one model: token ids in, token ids out. It reuses the cache for the common prefix of the
// next prompt and the last one, or any earlier one if there is a prefix cache, and runs only the rest.
#pragma once
#include "model/forward.h"
#include "model/prefix/cache.h"
#include "model/sampling/sampler.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tq {

class Decoder;
class Speculation;

enum class Stop { end_of_generation, length, context_full, memory_full, interrupted };

// Rates as in llama.cpp: reused tokens count as no work, and the first new token belongs to the prompt.
struct Timings {
    uint32_t reused_tokens = 0; // of the prompt, found in the cache
    uint32_t prompt_tokens = 0; // of the prompt, run
    uint64_t prompt_ns = 0;
    uint32_t decoded_tokens = 0;  // run after the prompt, one at a time, or several if they were drafted
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
    // Lengths of the prompt at which a later one may branch off: where its last messages begin (checkpoint_positions()).
    std::vector<uint32_t> marks = {};
};

struct Generated {
    std::vector<uint32_t> ids;
    Stop stop = Stop::length;
    Timings timings;
    std::string reason; // for memory_full: the numbers
};

// Which of the tokens that are in a session's slot the next prompt reuses.
enum class Reuse {
    all,  // also sampled ones: a conversation goes on
    cold, // those with the bits of a cold run (model/prefix/cold.h), as of the prefix cache: its logits do not depend on the past
};

class Session {
  public:
    // prefix: finds the beginnings of prompts, and keeps pages that were run; null: no prefix cache.
    explicit Session(Forward& forward, PrefixCache* prefix = nullptr, Reuse reuse = Reuse::all)
        : forward_(forward), prefix_(prefix), reuse_(reuse) {}

    // Throws Error with the numbers when the prompt is empty or exceeds the context.
    void require_fits(std::span<const uint32_t> prompt) const;

    // Returns the logits [vocab_size] after the last token of the prompt; valid until the next call. If `progress`, which counts
    // the tokens not found in the cache, stops it, it returns an empty span, and the tokens that were run stay in the cache.
    // Checks require_fits first. marks: as in GenerateOptions.
    std::span<const float> prefill(std::span<const uint32_t> prompt, const Progress& progress = {},
                                   std::span<const uint32_t> marks = {});

    // Continues the prompt until the answer ends, is interrupted, or max_tokens, the context or memory for it are used up.
    // Throws OutOfMemory when there is none for the prompt itself.
    // Tokens may be sampled by the device ahead of those that the caller has seen, or drafted (model/decoder.h); the answer, the
    // calls, the cached tokens and the sampler's state are the same as without.
    Generated generate(std::span<const uint32_t> prompt, Sampler& sampler, const GenerateOptions& options);

    // Reads the content of the cache for the tokens of cached_ids() from `position` on that are in one page: a PageSource.
    void read_page(uint32_t position, std::span<std::byte> bytes) const;
    // Returns the window and the states that belong to these tokens.
    SavedSlot save_slot() const { return forward_.cache().save_slot(0); }
    // Replaces the content of the cache with tokens, the first `cold` of which have the bits of a cold run, and with the window
    // and states in `saved`. Throws as Cache::restore() does; the cache is then empty.
    void restore(std::vector<uint32_t> ids, uint32_t cold, const PageSource& source, const SavedSlot& saved = {});
    // Puts the longest beginning of `ids` that the prefix cache has into the cache, sampled tokens included: a conversation goes
    // on with them. Returns the number of its tokens, which is less than that of all ids.
    uint32_t resume(std::span<const uint32_t> ids);

    const std::vector<uint32_t>& cached_ids() const { return ids_; }
    uint32_t cold_tokens() const { return cold_; }      // those of cached_ids() that have the bits of a cold run
    const Timings& timings() const { return timings_; } // of the latest prefill or generate
    Forward& forward() { return forward_; }

  private:
    std::vector<uint32_t> pauses(uint32_t total) const;
    bool begin_speculation(std::span<const uint32_t> prompt, const GenerateOptions& options);
    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress);
    std::span<const float> run_part(std::span<const uint32_t> ids, Span::Logits wanted, const Progress& progress);
    void fetch(std::span<const uint32_t> ids, uint32_t own, bool asks_machine, const Progress& progress);
    uint32_t reuse(std::span<const uint32_t> prompt, const Progress& progress);
    void keep(bool end = false, bool prompt_end = false); // in the prefix cache
    void forget();                                        // what is in the cache
    void keep_to_position();
    std::optional<Stop> run_next(std::optional<Decoder>& decoder, std::span<const uint32_t> all, size_t answer_begin,
                                 uint32_t wanted, const Progress& go_on, std::string& reason);
    std::span<const float> run_again(std::span<const uint32_t> ids, const DeviceLost& error, const Progress& progress);

    Forward& forward_;
    PrefixCache* const prefix_;
    const Reuse reuse_;
    std::vector<uint32_t> ids_;   // of the tokens in the cache that are known to be good
    uint32_t cold_ = 0;           // of those, how many have the bits of a cold run
    std::vector<uint32_t> marks_; // of the prompt, with those where it branches off
    Timings timings_;
};

} // namespace tq
