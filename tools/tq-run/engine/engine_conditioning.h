// Implements --kv-condition auto: a model's keys are measured when it is first loaded, and what was found is kept for later runs.
#pragma once
#include "model/forward.h"
#include "model/model.h"
#include "tools/tq-run/cli/console.h"
#include <functional>
#include <memory>

namespace tq {

// Whether a cache of the model wants measured keys and has none yet: --kv-condition is auto, keys of some layer are codes, and
// the model comes from files. Weights that are made have nothing to measure.
bool wants_measured_keys(const KvOptions& kv, const Model& model);

// Returns the scales and means that an earlier run kept for the model in conditioning/ of cache_directory(). Else measures
// them: the Forward that `open` makes runs the first tokens of the built-in text with an exact cache. The result is kept; with
// -v an error of keeping it is shown. Null if the model cannot run text, or its device has no memory or was lost: then norms
// remain. options: the model's, but for the cache. Throws Error; LoadStopped on Ctrl-C, which the caller catches
// (base/interrupt.h).
using OpenForward = std::function<std::unique_ptr<Forward>(const ForwardOptions&)>;
std::shared_ptr<const KeyCalibration> measured_keys(const Model& model, const ForwardOptions& options, Console& console,
                                                    const OpenForward& open);

} // namespace tq
