// Probabilities of tokens, as APIs report them.
#pragma once
#include "model/engine/serving/request.h"
#include <span>

namespace tq::serving {

// Returns a token with its logprob: of the softmax over `logits` [vocab_size], and with the `top` most probable tokens, in
// descending order, of equal ones the lower id first.
Token with_logprobs(uint32_t id, std::span<const float> logits, uint32_t top);

} // namespace tq::serving
