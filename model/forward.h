// One model on one device with one KV cache of any number of sequences: token ids in, logits out. Implemented three times: as
// plain loops in model/reference, the place to begin reading, in model/cpu and in model/gpu.
#pragma once
#include "base/error.h"
#include "model/cache.h"
#include "model/config.h"
#include "model/halves.h"
#include "model/kv/options.h"
#include "model/kv/stored.h"
#include "model/sampling/device_sampling.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// Called after each block of a long run, and also between the layers of one block, on a device between its submissions, with the
// tokens done so far; returning false stops the run there.
using Progress = std::function<bool(uint32_t done, uint32_t total)>;

// A part of a sequence: ids that follow those of a slot, and what is wanted of them: the logits that follow the last or each of
// them, or hidden: the last one's state after the last norm, which embeddings are made of.
struct Span {
    uint32_t slot;
    std::span<const uint32_t> ids;
    enum class Logits { none, last, all, hidden } logits = Logits::last;
};

// Called with the number of a span, the index of an id in it and the logits [vocab_size] that follow that id, or its state
// [hidden_size], which are valid during the call; those of the only span's last id until the next run.
using SpanLogits = std::function<void(size_t span, uint32_t i, std::span<const float> logits)>;
// The same for one sequence.
using EachLogits = std::function<void(uint32_t i, std::span<const float> logits)>;

// Called by run(), not by run_sampled(), with the intermediate results of each block [tokens][cols], in the order of their
// computation: "embed", "layer 3 q", "output_norm", "logits" and so on. The CPU and the devices have the same names and order;
// the reference has OnResult instead.
using Tap = std::function<void(std::string_view name, std::span<const float> values)>;

struct ForwardOptions {
    KvOptions kv;
    uint32_t context_size = 0; // maximum tokens of a slot; at least 1
    uint32_t slots = 1;
    uint32_t cache_tokens = 0;  // that all slots share; 0 = as many as they can have
    uint32_t threads = 0;       // of the CPU path; 0 = all cores
    uint32_t batch_size = 0;    // tokens per prefill block; 0 = the implementation's default
    bool deterministic = false; // logits do not depend on how the ids are divided among runs
    bool speculative = false;   // a token has the same bits alone, sampled on the device or not, and among separate rows
    Tap tap = {};               // slow; empty: off
    HeldHalves held = {};       // those that a stage of several has; default: all
    // Layers whose feed-forward networks the stage runs, too, in long blocks: their weights come to it for each block.
    std::vector<uint32_t> streamed = {};
    uint64_t checkpoint_bytes = Cache::Shape{}.checkpoint_bytes;
    // Of the machine's memory, what the CPU path counts on.
    uint64_t memory_bytes = UINT64_MAX;

    // Returns the pages of the cache: those of cache_tokens, but no more than the slots can have.
    uint32_t pages() const;
};

// Returns the shape of a model's cache, with the windows of its types, where some layer has one, and states, where one is
// recurrent.
Cache::Shape cache_shape(const ForwardOptions& options, const Config& config);

// How the kernels that compute a token depend on the division of a run into slices.
struct BlockKernels {
    uint32_t block = 0;         // the longest slice of a run; 0: each token is computed as if alone
    uint32_t many = UINT32_MAX; // slices of at least so many tokens give a token the same bits, whatever their length

    // Whether a run of at least `many` tokens has only slices of at least so many.
    bool evens_slices() const { return many <= block / 2; }
    // Returns the length of the next slice of a run, when `left` tokens of it are left: a block, or a little less, so that the
    // last slice has `many` where slices are evened.
    uint32_t slice(uint32_t left) const {
        if (left <= block) return left;
        return evens_slices() && left - block < many ? left - many : block;
    }
};

// What stays as it is as long as a model runs.
struct ForwardFacts {
    KvOptions kv;
    uint64_t kv_bytes_per_token; // all layers, keys and values, scales included
    uint32_t max_separate_rows;  // rows that one pass computes as if each were alone
    uint32_t max_sampled = 0;    // tokens of one run_sampled(); 0: it is not available, or no faster than the host
    BlockKernels block_kernels = {};
    std::string computation = {}; // names what decides the bits besides model and cache: device, driver, kernels
};

// Returns the facts of a model whose run_sampled() is not to be used.
inline ForwardFacts without_sampling(ForwardFacts facts) {
    facts.max_sampled = 0;
    return facts;
}

class Forward {
  public:
    virtual ~Forward() = default;

    // Appends each span's ids to its slot, at positions cache().position(slot) and on, and calls `each` with the logits that are
    // wanted, in any order of spans. A slot may occur once; its logits and state do not depend on the other spans. Returns false
    // where `progress`, which counts the ids of all spans, stopped it; the positions tell what has been run. Spans and ids must
    // not be empty and must fit the context (ENSURE). Throws OutOfMemory, before anything is run, when there are too few pages.
    // Throws DeviceLost; Error when the model's file is truncated (base/mapped_file.h) or, with all positions where the run
    // began, a value is not finite. A slot with recurrent states that would be cut so is empty instead (Cache::kept()).
    virtual bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress = {}) = 0;

    // Runs `id` in slot 0, samples the next token, runs that, and so on, without the host: returns the n sampled tokens, the last
    // of which is not run. 1 <= n <= SAMPLING_STEPS, with n random words; excluded ids are within the model's vocabulary
    // (ENSURE). Position advances by n. Returns fewer, with position() after the last that was run, where the logits that follow
    // are not finite: continuing from there throws as run() does. Returns none, with the position as it was, where it has ceased
    // to be available.
    virtual std::vector<uint32_t> run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling);

    // Makes the model anew after its device was lost; all slots of its cache, which is another one then, are empty. Returns false
    // where it cannot. Throws Error.
    virtual bool reopen(const DeviceLost&) { return false; }

    // Records the passes again, after a change of Device::profile. Does nothing on the CPU.
    virtual void record_again() {}

    virtual Cache& cache() = 0;
    const Cache& cache() const { return const_cast<Forward&>(*this).cache(); }
    virtual const ForwardFacts& facts() const = 0;
    const KvOptions& kv() const { return facts().kv; }
    uint64_t kv_bytes_per_token() const { return facts().kv_bytes_per_token; }
    uint32_t max_separate_rows() const { return facts().max_separate_rows; }
    uint32_t max_sampled() const { return facts().max_sampled; }
    const BlockKernels& block_kernels() const { return facts().block_kernels; }
    const std::string& computation() const { return facts().computation; }

    // For one sequence, in slot 0. Returns the logits that follow the last id, valid until the next run; an empty span where
    // `progress` stopped it.
    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress = {});
    // With the logits that follow every one of the ids, in order. Returns false where `progress` stopped it.
    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress = {});
    void truncate(uint32_t n) { cache().truncate(0, n); }
    void repeat_to(uint32_t n) { cache().repeat(0, n); }
    virtual StoredSide stored(uint32_t layer, KvSide side) { return cache().stored(0, layer, side); }
    uint32_t position() const { return cache().position(0); }
    uint32_t context_size() const { return cache().shape().context_size; }
};

// Returns the size in bytes of one token in a cache of these types: all layers with attention, keys and values, scales included.
uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv);
// Returns the size in bytes of all layers' full-precision windows, which come on top, whatever the context; 0 where kv.window is
// 0.
uint64_t kv_window_bytes(const Config& config, const KvOptions& kv);

// As check_kv() of model/kv/options.h. Throws Error, too, when a range names no layer with attention.
void check_kv(const KvOptions& kv, const Config& config);

// Thrown when a computed value is not finite.
struct NonFinite : Error {
    using Error::Error;
};

// Throws NonFinite for logits; `where` names the first stored vector that is not finite, if any.
[[noreturn]] void fail_nonfinite(const std::optional<std::string>& where);

} // namespace tq
