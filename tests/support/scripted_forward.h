// A model that says what a script wants, behind the engine's interface. Its cache stores nothing but the ids of the tokens, so
// that a page that is lost or swapped changes what it says.
#pragma once
#include "model/forward.h"
#include "model/model.h"
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tq::test {

// Qwen3's vocabulary with the tokens of tests/data, all that a text needs; a small shape, and no weights.
Model make_scripted_model(ChatVariant variant = ChatVariant::hybrid);

// Returns the ids that follow a prompt, to which the script adds <|im_end|>. A prompt ends with <|im_start|>assistant and a
// line end, and if the template forbids thinking with the empty thinking after it; a script that thinks says <think> itself,
// also if the template has already written it. Ids without <|im_start|>assistant at their end continue the answer to an empty
// prompt. Must always return the same for the same prompt.
using Script = std::function<std::vector<uint32_t>(std::span<const uint32_t> prompt)>;

struct ScriptedOptions {
    uint32_t context_size = 4096;
    uint32_t slots = 1;
    uint32_t cache_tokens = 0;                      // that all slots share; 0 = as many as they can have
    uint32_t batch_size = 512;                      // tokens of a pass
    std::chrono::microseconds delay{0};             // of each pass
    std::function<void(uint64_t pass)> before_pass; // with its number, from 1; may wait, or throw what a device throws
};

class ScriptedForward final : public Forward {
  public:
    // `model` outlives it.
    ScriptedForward(const Model& model, Script script, ScriptedOptions options);
    ~ScriptedForward() override;

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress = {}) override;
    Cache& cache() override;
    const ForwardFacts& facts() const override { return facts_; }

    uint64_t passes() const { return passes_; } // begun so far; any thread may ask

  private:
    class IdCache;
    struct Answer {
        std::vector<uint32_t> prompt, ids;
    };

    void run_pass(const Span& span, size_t number, uint32_t from, uint32_t count, const SpanLogits& each);
    size_t prompt_length(std::span<const uint32_t> ids) const;
    const std::vector<uint32_t>& answer(uint32_t slot, std::span<const uint32_t> prompt);
    size_t follow(std::span<const uint32_t> answer, std::span<const uint32_t> said) const;
    std::span<const float> logits(uint32_t slot, std::span<const uint32_t> ids);
    std::span<const float> hidden(std::span<const uint32_t> ids); // differs for other ids, and else means nothing

    const Model& model_;
    const Script script_;
    const ScriptedOptions options_;
    const ForwardFacts facts_{.kv = {},
                              .kv_bytes_per_token = tq::kv_bytes_per_token(model_.config, {}),
                              .max_separate_rows = 8,
                              .computation = "scripted"};
    std::unique_ptr<IdCache> cache_;
    std::vector<Answer> answers_;                           // of each slot
    std::vector<uint32_t> generation_prompt_, no_thinking_; // ids of the template's own text
    uint32_t end_;                                          // <|im_end|>
    std::vector<float> logits_, hidden_;
    std::atomic<uint64_t> passes_ = 0;
};

} // namespace tq::test
