// A model on several devices: a pass is a sequence of stages, each some halves of the layers on one device. The next device gets
// the hidden state from host memory.
#pragma once
#include "model/forward.h"
#include "model/stages/split.h"
#include "model/stages/stage.h"
#include "model/weights/weights.h"

namespace tq {

inline constexpr uint32_t slices_of_block = 8;

// Throws Error if the model is loaded with a head for multi-token prediction, which needs all of it on one device.
void require_no_head(const Config& config);

// make: a function for each device of `split`. It is called if the device holds something, with options for its part.
// options.batch_size is that of a slice; a block has several, so that all stages work at the same time. `weights` must outlive
// the result: the embedding is read there. Throws what `make` does.
std::unique_ptr<Forward> make_split_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                            const Split& split, std::span<const MakeStage> make);

} // namespace tq
