// The steps of model/cpu/forward.cpp, on the fast kernels.
#pragma once
#include "model/cpu/kernels.h"
#include "model/cpu/recurrent.h"

namespace tq::cpu {

#include "model/host/step_list-inl.h"

// In model/cpu/forward.cpp: the halves of a layer (model/halves.h), which add to the hidden state h of every token. The first is
// attention or a recurrence.
void first_half(Pass&, const Layer& layer, Activations& x);
void feed_forward_half(Pass&, const Layer& layer, Activations& x);
// From token ids to h, and from there to logits, or only to a; and from the ids that follow tokens of slots to the logits after
// them, by the head for multi-token prediction.
void layers(Pass&, const Network& net, Activations& x);
void head(Pass&, const Network& net, Activations& x);
void last_norm(Pass&, const Network& net, Activations& x);
void draft(Pass&, const Network& net, Activations& x);

} // namespace tq::cpu
