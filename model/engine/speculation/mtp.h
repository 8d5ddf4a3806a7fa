// Drafts from the model's own head for multi-token prediction (Config::mtp), as Qwen3.5 and later have it: a layer that predicts
// the token after next from the model's last state and the next token, and then on from its own state.
#pragma once
#include "model/engine/speculation/drafter.h"

namespace tq {

// Drafts nothing for a model without Forward::drafts().
class MtpDrafter final : public Drafter {
  public:
    std::vector<double> priors() const override { return {0.7}; }
    bool is_free() const override { return false; }
    // The head's cache is filled with the model's.
    bool read(uint32_t, std::span<const uint32_t>, const Progress&) override { return true; }
    // One run of the head for each step of all drafts. It proposes likely ids alone (DraftIds) if the texts have hardly any
    // others: for a vocabulary of 248,320 the head reads a quarter of its largest matrix then.
    std::vector<Draft> draft(Forward& model, std::span<const DraftRequest> requests) override;

    static constexpr uint32_t draft_max = 3; // by default: each further token is less sure, and costs the head's output matrix
};

} // namespace tq
