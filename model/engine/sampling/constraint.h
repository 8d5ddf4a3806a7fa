// The interface of a constraint, which says before each token which tokens may follow, and accepts each.
#pragma once
#include <cstdint>
#include <span>

namespace tq {

class TokenConstraint {
  public:
    virtual ~TokenConstraint() = default;
    // Sets the logits [vocab_size] of tokens that may not follow to -infinity.
    virtual void apply(std::span<float> logits) = 0;
    // The token that was sampled. Called once for each, in order.
    virtual void accept(uint32_t id) = 0;
};

} // namespace tq
