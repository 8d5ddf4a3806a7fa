// A request while it is answered.
#pragma once
#include "model/engine/serving/request.h"
#include "model/prefix/cache.h"
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

namespace tq::serving {

struct Sequence {
    using Clock = std::chrono::steady_clock;

    uint64_t number;
    Request request;
    std::shared_ptr<Stream> stream;
    std::optional<Sampler> own_sampler; // if the request brings none
    std::vector<uint32_t> ids;          // the prompt, and the answer so far
    Clock::time_point submitted = Clock::now(), started{}, answering{};

    std::optional<uint32_t> slot{}; // while it runs
    uint32_t cold = 0;              // of the tokens in its slot: as in PrefixCache::store()
    uint32_t counted = 0;           // tokens of the prompt that timings know of
    std::vector<uint32_t> pauses{}; // of its prompt, at which checkpoints are kept (checkpoint_positions())
    uint32_t told = 0;              // tokens of the prompt whose logprobs were told
    bool drafts = false;            // what drafts its tokens has read the prompt
    RequestTimings timings{};
    struct Values { // that are wanted instead of an answer
        std::vector<float> hidden, scores;
    };
    std::optional<Values> values{}; // once they are there
    bool done = false;              // its stream knows
    uint64_t admitted = 0;          // increases with every admission: the one that came last gives way first

    // If the sequence gave way: the content of its slot, page by page. Empty if there was no memory for it; the tokens of its
    // answer are then run again, one by one as they were before.
    std::vector<std::vector<std::byte>> saved{};
    SavedSlot saved_slot{};
    uint32_t saved_tokens = 0, saved_cold = 0;

    bool asked = false;                   // the shared store and another machine were asked for pages of the prompt
    std::shared_ptr<PromptFetch> fetch{}; // while that is coming

    Sampler& sampler() { return request.sampler ? *request.sampler : *own_sampler; }
    uint32_t prompt_tokens() const { return uint32_t(request.prompt.size()); }
    // Returns the position at which the run of its prompt pauses next, after `done` tokens of it.
    uint32_t next_pause(uint32_t done) const {
        const auto next = std::ranges::upper_bound(pauses, done);
        return next == pauses.end() ? prompt_tokens() : *next;
    }
    uint32_t answer_tokens() const { return uint32_t(ids.size()) - prompt_tokens(); }
    uint64_t saved_bytes() const {
        uint64_t bytes = saved_slot.bytes();
        for (const auto& page : saved) bytes += page.size();
        return bytes;
    }
    bool wants_values() const { return request.hidden || request.logits || !request.scored.empty(); }
};

inline uint64_t elapsed_ns(Sequence::Clock::time_point from, Sequence::Clock::time_point to) {
    return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

} // namespace tq::serving
