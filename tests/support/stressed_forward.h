// A model whose cache holds what a type makes of stressed keys and values (tools/quality/stress.h).
#pragma once
#include "model/forward.h"
#include "model/model.h"
#include "tools/quality/stress.h"

namespace tq::test {

// Runs on the CPU, in blocks of 128 tokens, one sequence, with a cache of fp32 in which every vector is replaced, before it is
// attended to, by undo(decode(encode(apply(x)))) in kv's types. kv's conditioning is between the stress and the type: of norms,
// which also takes the mean of the stress' bias from keys as from those of models that have one (model/kv/conditioning.h), or
// none; kv has no window. `model` must outlive it. Throws Error.
std::unique_ptr<Forward> make_stressed_forward(const Model& model, const KvOptions& kv, const quality::Stress& stress,
                                               uint32_t context_size);

} // namespace tq::test
