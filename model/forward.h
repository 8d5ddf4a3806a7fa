// One model on one device with one KV cache of any number of sequences: token ids in, logits out. Implemented three times: as
// plain loops in model/reference, the place to begin reading, in model/cpu and in model/gpu.
#pragma once
#include "base/error.h"
#include "model/cache.h"
#include "model/config.h"
#include "model/engine/sampling/device_sampling.h"
#include "model/halves.h"
#include "model/kv/options.h"
#include "model/kv/stored.h"
#include "model/progress.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// A part of a sequence: ids that follow those of a slot. logits: the requested results: the logits that follow the last id, or
// each id; or (hidden) the last id's state after the last norm, from which embeddings are made. certain: ids from this one on are
// drafts. The caller may take them back (Cache::truncate()) to any of them, also if the model has recurrent layers, whose updates
// then stay pending: 0, 1, or all, with at most ForwardOptions::pending after them.
struct Span {
    uint32_t slot;
    std::span<const uint32_t> ids;
    enum class Logits { none, last, all, hidden } logits = Logits::last;
    uint32_t certain = UINT32_MAX;
};

// Start of a draft by the model's own head: the id after the slot's tokens. The slot has at least one token.
struct DraftStart {
    uint32_t slot, id;
};
// Ids that drafts may be: all, or only those below likely_ids. The latter have the first rows of the head's output matrix, and
// only these rows are read then. Vocabularies give the lower ids to the tokens that were merged first, which are the more
// frequent ones.
enum class DraftIds { all, likely };
inline constexpr uint32_t likely_ids = 65535; // a device's matrices are in slices of as many rows (gpu::max_slice_rows)
// Called with the number of a start, that of a step, and the logits that the drafted id is the most probable of,
// [vocab_size] or [likely_ids].
using DraftLogits = std::function<void(size_t start, uint32_t step, std::span<const float> logits)>;

// Called with the number of a span, the index of an id in it, and the logits [vocab_size] that follow that id, or its state
// [hidden_size]. They are valid during the call; those of the only span's last id are valid until the next run.
using SpanLogits = std::function<void(size_t span, uint32_t i, std::span<const float> logits)>;
// Like SpanLogits, for one sequence.
using EachLogits = std::function<void(uint32_t i, std::span<const float> logits)>;

// Called by run(), not by run_sampled(), with the intermediate results of each block [tokens][cols], in the order of their
// computation: "embed", "layer 3 q", "output_norm", "logits" and so on. The CPU and the devices have the same names and order;
// the reference has OnResult instead.
using Tap = std::function<void(std::string_view name, std::span<const float> values)>;

struct ForwardOptions {
    KvOptions kv;
    uint32_t context_size = 0; // maximum tokens of a slot; at least 1
    uint32_t slots = 1;
    uint32_t cache_tokens = 0;  // tokens that all slots share; 0: as many as they can have
    uint32_t threads = 0;       // of the CPU path; 0: all cores
    uint32_t batch_size = 0;    // tokens per prefill block; 0: the implementation's default
    bool deterministic = false; // logits do not depend on how the ids are divided among runs
    uint32_t pending = 0;       // maximum drafts of a pass that a slot with recurrent layers can take back (Span::certain)
    bool speculative = false;   // a token has the same bits alone, sampled on the device or not, and among separate rows
    Tap tap = {};               // slow; empty: off
    HeldHalves held = {};       // halves that a stage holds; default: all
    // Layers whose feed-forward networks the stage runs, too, in long blocks: their weights come to it for each block.
    std::vector<uint32_t> streamed = {};
    uint64_t checkpoint_bytes = Cache::Shape{}.checkpoint_bytes;
    // Bytes of the machine's memory that the CPU path may use.
    uint64_t memory_bytes = UINT64_MAX;

    // Returns the pages of the cache: those of cache_tokens, but no more than the slots can have.
    uint32_t pages() const;
};

// Returns the shape of a model's cache: with windows if some layer stores codes and has one, with states if one is recurrent.
Cache::Shape cache_shape(const ForwardOptions& options, const Config& config);

// Kernels of a token, by the division of a run into slices.
struct BlockKernels {
    uint32_t block = 0;         // the longest slice of a run; 0: each token is computed as if alone
    uint32_t many = UINT32_MAX; // minimum tokens of a slice; from there on its length does not change a token's bits

    // Returns whether a token has the same bits in every slice.
    bool tokens_alike() const { return block == 0 || many == 1; }
    // Returns whether a run of at least `many` tokens has no slice of fewer.
    bool evens_slices() const { return many <= block / 2; }
    // Returns the length of the next slice of a run with `left` tokens left: a block, or less if the last slice would have fewer
    // than `many` tokens.
    uint32_t slice(uint32_t left) const {
        if (left <= block) return left;
        return evens_slices() && left - block < many ? left - many : block;
    }
};

// Facts that do not change as long as a model runs.
struct ForwardFacts {
    KvOptions kv;
    uint64_t kv_bytes_per_token; // all layers, keys and values, scales included
    uint32_t max_separate_rows;  // maximum rows that one pass computes as if each were alone
    bool drafts = false;         // whether draft() is available: Config::mtp, on one device
    uint32_t max_sampled = 0;    // maximum tokens of run_sampled(); 0: it is not available, or no faster than the host; 1: a
                                 // token cannot be taken back, because the model has recurrent states
    BlockKernels block_kernels = {};
    std::string computation = {}; // names what decides the bits besides model and cache: device, driver, kernels
};

// Returns the facts with run_sampled() turned off.
inline ForwardFacts without_sampling(ForwardFacts facts) {
    facts.max_sampled = 0;
    return facts;
}

class Forward {
  public:
    virtual ~Forward() = default;

    // Appends each span's ids to its slot, at positions cache().position(slot) and on, and calls `each` with the wanted logits,
    // in any order of spans. A slot may occur once; its logits and state do not depend on the other spans. Returns false if
    // `progress`, which counts the ids of all spans, stopped it; positions then say how many ids have been run. Spans and ids
    // must not be empty and must fit the context (ENSURE). Throws OutOfMemory, before anything is run, if there are too few
    // pages. Throws DeviceLost. Throws Error if the model's file is truncated (base/mapped_file.h). Throws NonFinite if a value
    // is not finite; positions are then as they were, but a slot with recurrent states that cannot be cut so is empty
    // (Cache::kept()).
    virtual bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress = {}) = 0;

    // Runs `id` in a slot, samples the next token, runs that, and so on, without the host. Returns the n sampled tokens; the last
    // one is not run; the slot's position advances by n. 1 <= n <= SAMPLING_STEPS, with n random words, and n = 1 if the model
    // has recurrent states; excluded ids are within the vocabulary (ENSURE). Returns fewer tokens if logits are not finite: the
    // position is then after the last token that was run, and continuing from there throws as run() does. Returns none, and
    // changes nothing, if sampling on the device is no longer available.
    virtual std::vector<uint32_t> run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling);

    // Proposes the ids that follow each start, at most n <= ForwardOptions::pending + 1 of them, by the model's head for
    // multi-token prediction: the most probable ones, each from the one before. Returns fewer if the context or the pages of the
    // cache end, or logits are not finite. Nothing else changes: the ids are run afterwards, as drafts. A slot may occur once.
    // Throws DeviceLost.
    virtual std::vector<std::vector<uint32_t>> draft(std::span<const DraftStart> starts, uint32_t n, DraftIds ids = DraftIds::all,
                                                     const DraftLogits& each = {});

    // Makes the model again after its device was lost. Its cache is then another one, whose slots are all empty. Returns false if
    // it cannot. Throws Error.
    virtual bool reopen(const DeviceLost&) { return false; }

    // Records the passes again, after a change of Device::profile. Does nothing on the CPU.
    virtual void record_again() {}

    virtual Cache& cache() = 0;
    const Cache& cache() const { return const_cast<Forward&>(*this).cache(); }
    virtual const ForwardFacts& facts() const = 0;
    const KvOptions& kv() const { return facts().kv; }
    uint64_t kv_bytes_per_token() const { return facts().kv_bytes_per_token; }
    uint32_t max_separate_rows() const { return facts().max_separate_rows; }
    bool drafts() const { return facts().drafts; }
    uint32_t max_sampled() const { return facts().max_sampled; }
    const BlockKernels& block_kernels() const { return facts().block_kernels; }
    const std::string& computation() const { return facts().computation; }

    // For one sequence, in slot 0. Returns the logits that follow the last id, valid until the next run; an empty span if
    // `progress` stopped it.
    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress = {});
    // Calls `each` with the logits that follow each id, in order. Returns false if `progress` stopped it.
    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress = {});
    void truncate(uint32_t n) { cache().truncate(0, n); }
    void repeat_to(uint32_t n) { cache().repeat(0, n); }
    virtual StoredSide stored(uint32_t layer, KvSide side) { return cache().stored(0, layer, side); }
    uint32_t position() const { return cache().position(0); }
    uint32_t context_size() const { return cache().shape().context_size; }
};

// Returns the size in bytes of one token in a cache of these types: all layers with attention, keys and values, scales included.
uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv);
// Returns the size in bytes of all layers' full-precision windows. They come on top, whatever the context; 0 if kv.window is 0.
uint64_t kv_window_bytes(const Config& config, const KvOptions& kv);

// Like check_kv() of model/kv/options.h. Throws Error also if a range names no layer with attention.
void check_kv(const KvOptions& kv, const Config& config);

// Thrown when a computed value is not finite.
struct NonFinite : Error {
    using Error::Error;
};

// Throws NonFinite for logits; `where` names the first stored vector that is not finite, if any.
[[noreturn]] void fail_nonfinite(const std::optional<std::string>& where);

} // namespace tq
