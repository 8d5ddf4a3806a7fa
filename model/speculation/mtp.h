// Drafts from the model's own head for multi-token prediction (Config::mtp), as Qwen3.5 and later have it: a layer that predicts
// the token after next from the model's last state and the next token, and then on from its own state.
#pragma once
#include "model/speculation/drafter.h"

namespace tq {

class MtpDrafter final : public Drafter {
  public:
    // forward: the model's, with Forward::drafts(); it outlives the drafter. It drafts for slot 0.
    explicit MtpDrafter(Forward& forward) : forward_(forward) {}

    std::vector<double> priors() const override { return {0.7}; }
    bool is_free() const override { return false; }
    bool read(std::span<const uint32_t>, const Progress&) override { return true; } // the head's cache is filled with the model's
    // Slot 0 has all of `ids` but the last; else there is no draft. Throws DeviceLost.
    Draft draft(std::span<const uint32_t> ids, uint32_t most) override;

    static constexpr uint32_t draft_max = 3; // by default: each further token is less sure, and costs the head's output matrix

  private:
    Forward& forward_;
};

} // namespace tq
