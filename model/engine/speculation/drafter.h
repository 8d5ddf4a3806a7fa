// Proposals for the next tokens of sequences (speculative decoding). A wrong proposal costs time and changes nothing else: the
// model verifies each of its tokens (model/engine/serving/answers.cpp).
#pragma once
#include "model/forward.h"
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

// The most tokens of a draft. A full-precision window bears that many being taken back (model/kv/window.h).
inline constexpr uint32_t max_draft_tokens = SAMPLING_STEPS - 1;

// A sequence that wants at most `max_tokens` ids that may follow `ids`. These are all its tokens so far, at least one, in any
// relation to the tokens that its slot had before; the slot has all of them but the last.
struct DraftRequest {
    uint32_t slot;
    std::span<const uint32_t> ids;
    uint32_t max_tokens;
};

struct Draft {
    std::vector<uint32_t> ids; // that may follow; none: no proposal
    uint32_t kind = 0;         // one of Drafter::priors()
};

class Drafter {
  public:
    virtual ~Drafter() = default;

    // Returns the expected share of right tokens for each kind of draft, before anything is known. Drafts of a kind are about as
    // likely to be right as one another.
    virtual std::vector<double> priors() const = 0;

    // Whether a draft costs next to nothing, so that it can also be made only to see whether it would have been right.
    virtual bool is_free() const = 0;

    // Whether it still drafts when the device of the model was lost and opened again.
    virtual bool survives_loss() const { return true; }

    // Reads the prompt of a slot before its answer begins. Returns false if `progress` stopped it.
    virtual bool read(uint32_t slot, std::span<const uint32_t> prompt, const Progress& progress) = 0;

    // Returns a draft for each request. model: which verifies them. A slot occurs once. Throws DeviceLost.
    virtual std::vector<Draft> draft(Forward& model, std::span<const DraftRequest> requests) = 0;
};

} // namespace tq
