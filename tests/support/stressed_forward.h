// A model whose cache holds what a type makes of stressed keys and values (tests/support/stress.h).
#pragma once
#include "model/forward.h"
#include "model/model.h"
#include "tests/support/stress.h"

namespace tq::test {

// Runs on the CPU, in blocks of 128 tokens, one sequence, and attends to undo(decode(encode(apply(x)))) of every vector x in
// kv's types; with a window, to undo(fp16(apply(x))) of the last tokens, as the caches of Forward do. kv's conditioning is
// between the stress and the type: of norms, by the weights as ever, and by what weights may know of the stress: the mean of its
// bias of keys, and its factors of channels of values; or none. `model` must outlive it. Throws Error: kv is not of this model;
// and when it runs, if a type or the window's fp16 cannot hold such vectors.
std::unique_ptr<Forward> make_stressed_forward(const Model& model, const KvOptions& kv, const quality::Stress& stress,
                                               uint32_t context_size);

} // namespace tq::test
