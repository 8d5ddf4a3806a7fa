// Drafts from a smaller model of the same vocabulary, which runs each token that it proposes (Leviathan et al., 2023). It
// proposes the most probable tokens, whatever the sampling: what is verified is the token that the model itself samples.
#pragma once
#include "model/sampling/sampler.h"
#include "model/speculation/drafter.h"
#include <memory>

namespace tq {

class DraftModel final : public Drafter {
  public:
    // excluded: [vocab_size] of the draft model, ids that it must not propose. On the CPU a draft ends where the draft model is
    // less sure than min_confidence of all of it together.
    DraftModel(std::unique_ptr<Forward> forward, const std::vector<bool>& excluded, double min_confidence = 0.3);

    std::vector<double> priors() const override { return {0.7}; }
    bool is_free() const override { return false; }

    // Both throw Error as Forward::run() does, except for OutOfMemory: a sequence that does not fit has no drafts.
    bool read(std::span<const uint32_t> prompt, const Progress& progress) override;
    Draft draft(std::span<const uint32_t> ids, uint32_t most) override;

  private:
    bool rewind(std::span<const uint32_t> ids, size_t kept);
    std::span<const float> run_rest(std::span<const uint32_t> ids, const Progress& progress);
    std::vector<uint32_t> most_probable(std::span<const float> logits, uint32_t most);
    std::vector<uint32_t> sampled_on_device(uint32_t id, uint32_t most);

    const std::unique_ptr<Forward> forward_;
    const double min_confidence_;
    Sampler sampler_;           // greedy
    std::vector<uint32_t> ids_; // in its cache
};

// Returns the probability of the most probable token.
double largest_probability(std::span<const float> logits);

} // namespace tq
