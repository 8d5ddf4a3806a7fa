// What tells one model from another: whether a cache or a calibration of an earlier run is of this one.
#pragma once
#include "model/config.h"
#include "model/load.h"
#include <string>

namespace tq {

// Sixteen hex digits: the checksum (base/checksum.h) of a text with the shape and RoPE of the model, and with name, type, size
// and checksum of each tensor; that of a tensor is the checksum of its rows' checksums. Every byte is read, on all threads, and
// `on_hash` hears how far it is (LoadStopped where it says so).
//
// The tensors' part is kept in fingerprints/ in base/cache_directory.h's, under what weights.files says: a model that is there
// unchanged is not read again. A file that is patched in place and whose time of modification is then set back is taken for the
// file it was.
std::string model_fingerprint(const Config& config, const Weights& weights, const LoadProgress& on_hash = {});

} // namespace tq
