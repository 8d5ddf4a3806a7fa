// The speed of generation on GPUs that are not there, predicted from the bytes that a token must move, the instructions that our
// kernels take for them, and the waits between kernels. The GPU that was measured is slower (nearest_measured()).
#pragma once
#include "model/config.h"
#include "model/gpu/tuning.h"
#include "model/kv/options.h"
#include "model/weights/weights.h"
#include <span>
#include <string_view>

namespace tq::gpu {

// Data of the makers' specifications; wait_us is assumed, after what others have published of such GPUs.
struct KnownGpu {
    const char* name;
    double gb_per_s;   // of its memory
    uint32_t cores;    // multiprocessors, compute units or Xe cores
    uint32_t lanes;    // fp32 instructions per clock and core
    double ghz;        // boost clock
    double wait_us;    // between two kernels if the second waits for the first
    uint32_t subgroup; // that our kernels would require
};
std::span<const KnownGpu> known_gpus();

// Returns the GPU whose name contains `text`, ignoring case. Throws Error that lists all if none or several do.
const KnownGpu& find_known_gpu(std::string_view text);

// A speed of generation that tq-run bench has measured (docs/measured-gpus.md).
struct MeasuredSpeed {
    const char *gpu, *model; // names of known_gpus() and parse_synthetic()
    KvType cache;            // of keys and values
    uint32_t depth;
    double tokens_per_second;
};
// Returns the measurement of the GPU with the closest memory bandwidth.
const MeasuredSpeed& nearest_measured(const KnownGpu& gpu);

// Shares of a GPU's limits that kernels are assumed to reach, and the time from a load to its data.
constexpr double bandwidth_share = 0.9, issue_share = 0.85, latency_us = 0.75;

// A model on a GPU, of whose answer `depth` tokens are in the cache.
struct PredictedCase {
    const KnownGpu& gpu;
    const Config& config;
    const Weights& weights;
    const KvOptions& kv;
    uint32_t depth;
};

// Seconds.
struct TokenTime {
    double weights, attention, waits;
    double total() const { return weights + attention + waits; }
};
// Predicts a pass of `rows` rows: one token and the drafts that are verified with it, at most max_columns.
TokenTime predict_pass(const PredictedCase& c, uint32_t rows = 1);
// Predicts one run of the model's head for multi-token prediction, which proposes a likely id (DraftIds). Needs Weights::mtp.
TokenTime predict_draft(const PredictedCase& c);

// Drafts of that head, of at most `max` tokens, with which generation is fastest if each is right with probability `acceptance`.
struct DraftedSpeed {
    uint32_t length;
    double tokens_per_second;
};
DraftedSpeed predict_drafting(const PredictedCase& c, double acceptance, uint32_t max);

} // namespace tq::gpu
