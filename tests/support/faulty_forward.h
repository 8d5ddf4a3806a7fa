// The reference's forward pass with a fault planted between its steps, where keys and values are stored or attended to: the
// ablation of tools/check/quality/ablation.h must find it. Without a fault it computes the same as make_cpu_forward(), except for
// rounding.
#pragma once
#include "model/forward.h"
#include "model/model.h"

namespace tq::test {

enum class Fault {
    none,
    swapped_everywhere, // heads and tokens of a block are swapped before anything is stored
    swapped_unless_f32, // only if the cache is not f32
    swapped_if_coded,   // only if it has codes: the bug that sanctum found
    other_rotation,     // queries are rotated with the seed of the next layer
    other_haar,         // only with the dense rotation, correctly with the other kind
    scale_twice,        // the scale of TurboQuant vectors is multiplied by itself
    rule_twice,         // the same only under the scale rule least-squares
    conditioned_twice,  // queries are twice as long if keys are conditioned
    trellis_shifted,    // the words of a trellis' codes are each one further
    quarters_swapped,   // the scales of two quarters of unequal bits are exchanged
    window_shifted,     // the fp16 words of a window beside codes of 3 bits are each one further
};

// `model` outlives the result.
std::unique_ptr<Forward> make_faulty_forward(const Model& model, const KvOptions& kv, uint32_t context_size, Fault fault);

} // namespace tq::test
