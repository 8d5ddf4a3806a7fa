// A session is one conversation with one model, in the caller's thread: token ids in, token ids out. It is a batch of one slot
// (model/engine/serving/batch.h): the cache is reused for the common prefix of the next prompt and the last one, or any earlier
// one if there is a prefix cache, and only the rest is run.
#pragma once
#include "model/engine/serving/request.h"
#include "model/progress.h"
#include "model/saved_slot.h"
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tq {

namespace serving {
class Batch;
}
class Forward;
class PrefixCache;
struct Error;

using serving::Reuse;

enum class Stop { end_of_generation, length, context_full, memory_full, interrupted };

// Rates as in llama.cpp: reused tokens count as no work, and the first new token belongs to the prompt.
struct Timings {
    uint32_t reused_tokens = 0; // of the prompt, found in the cache
    uint32_t prompt_tokens = 0; // of the prompt, run
    uint64_t prompt_ns = 0;
    uint32_t decoded_tokens = 0;  // run after the prompt, one at a time, or several if they were drafted
    uint64_t decode_ns = 0;       // time of decoded_tokens, with the sampling after each
    uint32_t drafted_tokens = 0;  // that were verified
    uint32_t accepted_tokens = 0; // drafted tokens that were right

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
    // Lengths of the prompt at which a later one may branch off: the beginnings of its last messages (checkpoint_positions()).
    std::vector<uint32_t> marks = {};
};

struct Generated {
    std::vector<uint32_t> ids;
    Stop stop = Stop::length;
    Timings timings;
    std::string reason; // for memory_full: the numbers
};

class Session {
  public:
    // prefix: finds the beginnings of prompts, and keeps pages that were run; null: no prefix cache. Both outlive the session.
    explicit Session(Forward& forward, PrefixCache* prefix = nullptr, Reuse reuse = Reuse::all);
    ~Session();

    // Throws Error with the numbers when the prompt is empty or exceeds the context.
    void require_fits(std::span<const uint32_t> prompt) const;

    // Returns the logits [vocab_size] after the last token of the prompt; valid until the next call. If `progress`, which counts
    // the tokens not found in the cache, stops it, it returns an empty span, and the tokens that were run stay in the cache.
    // Checks require_fits first. marks: as in GenerateOptions. Throws as Forward::run() does.
    std::span<const float> prefill(std::span<const uint32_t> prompt, const Progress& progress = {},
                                   std::span<const uint32_t> marks = {});

    // Continues the prompt until the answer ends, is interrupted, or max_tokens, the context or memory for it are used up.
    // Throws OutOfMemory if there is none for the prompt itself. Exceptions of callbacks pass through. Several tokens may be
    // sampled by the device, or drafted and verified, before on_token is called with each; the answer, the cached tokens and the
    // sampler's state are the same as without.
    Generated generate(std::span<const uint32_t> prompt, Sampler& sampler, const GenerateOptions& options);

    // Reads the content of the cache for the tokens of cached_ids() from `position` on that are in one page: a PageSource.
    void read_page(uint32_t position, std::span<std::byte> bytes) const;
    // Returns the window and the states that belong to these tokens.
    SavedSlot save_slot() const;
    // Replaces the content of the cache with tokens, and with the window and states in `saved`. The first `cold` tokens have the
    // bits of a cold run. Throws as Cache::restore() does; the cache is then empty.
    void restore(std::vector<uint32_t> ids, uint32_t cold, const PageSource& source, const SavedSlot& saved = {});
    // Puts the longest beginning of `ids` that the prefix cache has into the cache, sampled tokens included: a conversation goes
    // on with them. Returns the number of its tokens, which is less than that of all ids.
    uint32_t resume(std::span<const uint32_t> ids);

    std::vector<uint32_t> cached_ids() const;
    uint32_t cold_tokens() const;                       // of cached_ids(), with the bits of a cold run
    const Timings& timings() const { return timings_; } // of the latest prefill or generate
    Forward& forward() { return forward_; }
    uint32_t context_size() const;

  private:
    static constexpr uint32_t slot = 0;

    void reopen(const Error* error);
    std::unique_ptr<serving::Batch> make_batch(Reuse reuse);
    std::shared_ptr<serving::Stream> submit(std::span<const uint32_t> prompt, serving::Request request);
    serving::Update take(serving::Stream& stream);
    void note_timings(const serving::Update& update);
    Generated finish(Generated result, const serving::Update& update, bool has_answer) const;

    Forward& forward_;
    PrefixCache* const prefix_;
    std::function<bool(uint32_t id)> is_end_; // of the answer that is generated
    const std::unique_ptr<serving::Batch> batch_;
    bool lost_ = false;         // the device, once
    std::vector<float> logits_; // of the last prefill
    Timings timings_;
};

} // namespace tq
