// Chooses the devices of a model's halves, and predicts the speed of a choice.
#pragma once
#include "model/kv/options.h"
#include "model/stages/split.h"
#include "model/weights/weights.h"
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace tq {

// A device that may take parts of a model.
struct Candidate {
    uint64_t bytes; // of memory for them
    // Returns the memory that these halves take there, with their part of the cache, and scratch.
    std::function<uint64_t(const HeldHalves&)> needs;
    double share = 0; // of the layers (-ts); 0 for all candidates: by their memory
};

// The user's wishes (llama.cpp's flags of these names). With `fit`, halves that do not fit a device are on the CPU instead.
struct PlacementWishes {
    std::optional<uint32_t> gpu_layers; // -ngl: the last N layers, and with one more the head, are on devices; default: all
    double cpu_share = 0;               // of all layers, the first ones, on the CPU; of no effect with gpu_layers
    uint32_t cpu_feed_forwards = 0;     // --n-cpu-moe: those of the first N layers are on the CPU
    bool fit = true;
};

// Places `layers` layers and the head. Devices get consecutive layers, in their order; the last device of the result is the CPU.
// Layers that do not fit a device go to its neighbours, as far as these have room for whole ones, and only then to the CPU.
// A device's memory is filled in the order attention, with norms and the cache; head; feed-forward networks, of the last layers
// first: all attention is read for every token, and long caches with it, of a mixture's experts only a part.
Split place(uint32_t layers, const PlacementWishes& wishes, std::span<const Candidate> candidates);

// Assumed speeds of a device. gb_per_s: reading weights and cache; part_seconds: a hidden state's way to it and back;
// wait_seconds: between two kernels, if the second waits for the first; gflops: products with blocks, in 10^9 operations a
// second; upload_gb_per_s: weights from the host's memory.
struct AssumedSpeed {
    double gb_per_s, part_seconds, wait_seconds, gflops, upload_gb_per_s;
};

// Returns the predicted seconds of a token after `depth` others. Devices work in turn; each takes the time to read its weights
// and cache, and the waits between its kernels. speeds: of each device of `split`.
double predict_token_seconds(const Config& config, const Weights& weights, const KvOptions& kv, uint32_t depth,
                             const Split& split, std::span<const AssumedSpeed> speeds);

// Returns the minimum rows of a block, at least min_stream_rows, for which the CPU's feed-forward networks are predicted to
// take less time on the devices of their attention, with the upload of their weights. 0 if there are none, or if it never is so.
inline constexpr uint32_t min_stream_rows = 32;
uint32_t predict_stream_rows(const Config& config, const Weights& weights, const Split& split,
                             std::span<const AssumedSpeed> speeds);

// Returns "attention of layers 0-47, feed-forward of layers 20-47, head", or "nothing".
std::string describe_part(const Split& split, uint32_t device);

} // namespace tq
