// Drafts from a smaller model of the same vocabulary, which runs each token that it proposes (Leviathan et al., 2023). It
// proposes the most probable tokens, whatever the sampling: a draft is verified against the token that the model itself samples.
#pragma once
#include "model/engine/sampling/sampler.h"
#include "model/engine/speculation/drafter.h"
#include <memory>

namespace tq {

class DraftModel final : public Drafter {
  public:
    // excluded: [vocab_size] of the draft model, ids that it must not propose. On the CPU a draft ends if the draft model's
    // probability of the whole draft falls below min_confidence.
    DraftModel(std::unique_ptr<Forward> forward, const std::vector<bool>& excluded, double min_confidence = 0.3);

    std::vector<double> priors() const override { return {0.7}; }
    bool is_free() const override { return false; }

    bool survives_loss() const override { return false; } // it may have been on that device

    // Both throw Error as Forward::run() does. A sequence that does not fit, or whose slot `forward` does not have, has no
    // drafts; a draft ends if memory ends, or a value is not finite.
    bool read(uint32_t slot, std::span<const uint32_t> prompt, const Progress& progress) override;
    std::vector<Draft> draft(Forward& model, std::span<const DraftRequest> requests) override;

  private:
    using Ids = std::vector<uint32_t>;

    // A draft that is being made.
    struct Making {
        const DraftRequest* request;
        Draft* out;
        double confidence = 1; // of all of it
        bool ended = false;
    };
    bool rewind(uint32_t slot, std::span<const uint32_t> ids, size_t kept);
    void note_run(uint32_t slot, std::span<const uint32_t> ids);
    void run_step(std::span<Making> drafts);
    void add(Making& draft, std::span<const float> logits);
    void sample_on_device(const DraftRequest& request, Ids& out);

    const std::unique_ptr<Forward> forward_;
    const double min_confidence_;
    Sampler sampler_;      // greedy
    std::vector<Ids> ids_; // of each slot, in its cache
};

// Returns the probability of the most probable token.
double max_probability(std::span<const float> logits);

} // namespace tq
