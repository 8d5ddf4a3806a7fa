// The device memory of a forward pass: the sizes that model/gpu/stage.cpp allocates, and their sum. Not counted: ids and
// read-back buffers, below 1 MB, and the logits of several rows, 256 bytes for each id of the vocabulary.
#pragma once
#include "model/forward.h"
#include "model/gpu/context.h"
#include "model/gpu/recurrent.h"
#include "model/gpu/tuning.h"
#include "model/memory_plan.h"
#include "model/weights/weights.h"
#include "runtime/device.h"
#include <algorithm>

namespace tq::gpu {

// Returns the size in bytes of HeadNormBuffers: the norms of queries and keys, with their channel scaling, and that of values.
uint64_t head_norm_bytes(const Config& config, const KvOptions& kv);

// The fewest pages of a cache that is smaller than the context, for lack of memory.
inline constexpr uint32_t min_pages = 4;

// The most rows of a pass whose rows are separate, and the most spans of a block.
uint32_t max_separate_rows(const ForwardOptions& options);
uint32_t max_block_spans(const ForwardOptions& options);

ContextLayout context_layout(const Config& config, const ForwardOptions& options);

// The bytes of the activations of a block of `batch` tokens, fp32 but for `rounded`; logits: of one row.
struct ScratchBytes {
    uint64_t hidden, normed, attn, q, kv, partials, ffn, rounded, logits;
    uint64_t page_scores;                         // the last of q
    uint32_t pages;                               // pages of page_scores; 0 if no layer's keys can lack means
    uint64_t candidates, sampling;                // of sampling
    uint64_t router = 16, routes = 16, down = 16; // of experts; buffers cannot be empty
    uint64_t shared = 16;                         // of the expert that all tokens have
    uint64_t gate = 16;                           // of gated attention; what holds queries, too, has twice as many
    uint64_t recurrent_rows = 16, delta = 16;     // of recurrent layers
    std::optional<RecurrentRows> rows_at;         // the parts of recurrent_rows
    uint64_t mtp = 16;                            // of a head for multi-token prediction, embeddings or states

    ScratchBytes(const Config& config, const Tuning& tuning, const ForwardOptions& options);
    uint64_t total() const {
        return 2 * hidden + normed + attn + q + 2 * kv + partials + ffn + gate_up() + rounded + logits + candidates + sampling +
               router + routes + down + shared + 3 * gate + recurrent_rows + 2 * delta + 4 * mtp;
    }
    uint64_t gate_up() const { return 2 * std::max(ffn, shared); }

    uint64_t largest() const; // the largest of the buffers that grow with the batch
};

// Returns the options with the batch size that the pass will use: the device's own if none is given, in whole tiles.
ForwardOptions with_batch_size(ForwardOptions options, const Tuning& tuning);

// Throws an Error if a block of that many tokens exceeds the device's limits of a binding or of workgroups.
void require_batch(const Capabilities&, const Config& config, const Tuning& tuning, const ForwardOptions& options);

// Returns the memory that make_gpu_forward needs of the device, whose available memory is its budget less what is in use.
MemoryPlan plan_memory(const Device& device, const Config& config, const Weights& weights, const ForwardOptions& options);
// The same for a device that is not present. MemoryPlan::available is all of caps.memory_bytes.
MemoryPlan plan_memory(const Capabilities& caps, const Config& config, const Weights& weights, const ForwardOptions& options);

} // namespace tq::gpu
