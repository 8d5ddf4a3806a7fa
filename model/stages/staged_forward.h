// A model that a stage runs: one device, or several behind a pipeline.
#pragma once
#include "model/stages/stage.h"

namespace tq {

// `make` makes a stage that holds the whole model, of a cache of options' shape. Throws what `make` does.
std::unique_ptr<Forward> make_staged_forward(const Config& config, const ForwardOptions& options, const MakeStage& make);

} // namespace tq
