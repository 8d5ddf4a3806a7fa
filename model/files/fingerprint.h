// Identifies a model: whether a cache or a calibration of an earlier run belongs to this one.
#pragma once
#include "model/config.h"
#include "model/load.h"
#include <string>

namespace tq {

// Returns sixteen hex digits: the checksum (base/checksum.h) of a text with the shape and RoPE of the model, and with name,
// type, size and checksum of each tensor; that of a tensor is the checksum of its rows' checksums. Every byte is read, on all
// threads, and `on_hash` gets the progress (LoadStopped if it returns false).
//
// The checksum of the tensors is stored in fingerprints/ of cache_directory(), with weights.files as its key: an unchanged
// model is not read again. A file that is patched in place and whose time of modification is then set back is not noticed.
std::string model_fingerprint(const Config& config, const Weights& weights, const LoadProgress& on_hash = {});

// Returns a text that tells models on this machine apart without reading their weights: by the shape, the tensors' names and
// types, and the identity of the files with their time of modification. Empty if there are no files, or one has been modified
// just now, so that another change need not show.
std::string file_fingerprint(const Config& config, const Weights& weights);

} // namespace tq
