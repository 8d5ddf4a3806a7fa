// Greedy continuations of the same prompt with another cache and with the reference.
#pragma once
#include "model/engine/session.h"
#include "model/text/tokenizer.h"
#include <optional>

namespace tq::quality {

struct GreedySample {
    std::vector<uint32_t> prompt, reference, measured; // the continuations end where the model ends them
    size_t same = 0;                                   // tokens before they diverge
};

// Both have room for the prompt and `tokens` more. vocab_size: of the logits. Nothing if `interrupted` stopped it.
std::optional<GreedySample> greedy_sample(Forward& measured, Forward& reference, std::span<const uint32_t> prompt,
                                          uint32_t tokens, const Tokenizer& tokenizer, uint32_t vocab_size,
                                          const std::function<bool()>& interrupted);

} // namespace tq::quality
