// One model on one device with one KV cache: token ids in, logits out. Implemented three times: in plain loops in
// model/reference, where to begin to read, in model/cpu and in model/gpu.
#pragma once
#include "base/error.h"
#include "model/config.h"
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

// Called after each block of a long run, and on a device between the submissions of one block, too, with the tokens done so far;
// false stops the run there.
using Progress = std::function<bool(uint32_t done, uint32_t total)>;

// Called with the number of an id and the logits [vocab_size] that follow it, valid during the call.
using EachLogits = std::function<void(uint32_t i, std::span<const float> logits)>;

// Called by run(), not by run_all() or run_sampled(), with the intermediate results of each block [tokens][cols], in the order in
// which they are computed: "embed", "layer 3 q", "output_norm", "logits" and so on. The CPU and the devices have the same names
// and order; the reference has ReferenceOptions instead.
using Tap = std::function<void(std::string_view name, std::span<const float> values)>;

struct ForwardOptions {
    KvOptions kv;
    uint32_t context_size = 0; // tokens the cache can come to hold; at least 1
    uint32_t threads = 0;      // of the CPU path; 0 = all cores
    uint32_t batch_size = 0;   // tokens per prefill block; 0 = the implementation's choice
    Tap tap = {};              // slow; empty: off
    uint32_t cache_step = 256; // tokens; the cache begins with four of them and grows by whole ones. 0: it is whole at once

    uint32_t first_capacity() const; // of the cache, in tokens
    uint32_t last_capacity() const;  // that for context_size tokens
    // The next one that holds `needed` tokens: at least half as much again, so that all that is ever copied is at most twice
    // what is there in the end; but no more than the last.
    uint32_t next_capacity(uint32_t capacity, uint32_t needed) const;
};

class Forward {
  public:
    virtual ~Forward() = default;

    // Appends ids at positions position(), position() + 1, ... and returns the logits [vocab_size] that follow the last one;
    // they stay valid until the next call. Stopped by `progress`: returns an empty span, position() tells how far it came.
    // ids must not be empty and must fit the context (ENSURE). Throws OutOfMemory, before anything is run, when the cache cannot
    // grow enough for them: what it held it still holds. Throws Error when the device is lost, the model's file is cut off
    // (base/mapped_file.h) or, with position() where the run began, a value is not finite.
    virtual std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress = {}) = 0;

    // Most tokens that run_sampled() takes at once; 0 where it is not offered, or no faster than run() and sampling on the host.
    virtual uint32_t max_sampled() const { return 0; }

    // Runs `id`, samples the token that follows, runs that, and so on, without a word from the host: the n tokens sampled, of
    // which the last is not run. 1 <= n <= SAMPLING_STEPS, and as many random words; excluded ids are of the model's vocabulary
    // (ENSURE). Position advances by n. Fewer, with position() behind the last that is run, where the logits that would follow
    // are not finite: going on from there throws what run() does.
    virtual std::vector<uint32_t> run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling);

    // As run(), with the logits that follow every one of the ids, in order. False where `progress` stopped it. An implementation
    // that has nothing faster runs them one by one.
    virtual bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress = {});

    // Forgets every position from n on (n <= position()). Exact: the next run equals one that never saw them.
    virtual void truncate(uint32_t n) = 0;

    // For measurements at depth, which do not depend on what is stored: as if n tokens had been run, by repeating what is stored
    // of the first position(), an even number above 0 (n >= position()). Throws OutOfMemory as run() does.
    virtual void repeat_to(uint32_t n) = 0;

    // What the cache holds of one side of a layer, at the first position() tokens: the same bytes in every implementation. Throws
    // Error when the device is lost.
    virtual StoredSide stored(uint32_t layer, KvSide side);

    // Puts `tokens` tokens (at most context_size()) in the place of all that the cache holds, as stored() gave them of a cache of
    // the same types and model, in this implementation or the other: the next run equals one behind those. `source` is asked for
    // each layer's keys and then its values, in order. Throws OutOfMemory as run() does, and what `source` throws: nothing is in
    // the cache then.
    virtual void restore(uint32_t tokens, const StoredSource& source);

    // Records its passes anew, after a change of Device::profile. Nothing on the CPU.
    virtual void record_again() {}

    virtual uint32_t position() const = 0;                       // tokens in the cache
    virtual uint32_t context_size() const = 0;                   // tokens it can come to hold
    virtual uint32_t capacity() const { return context_size(); } // tokens it has memory for, now
    virtual const KvOptions& kv() const = 0;
    virtual uint64_t kv_bytes_per_token() const = 0; // all layers, keys and values, scales included
};

// Bytes that one token takes in a cache of these types: all layers, keys and values, scales included.
uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv);
// Bytes of the full-precision windows of all layers, which come on top and do not depend on the context; 0 where kv.window is 0.
uint64_t kv_window_bytes(const Config& config, const KvOptions& kv);

// The numbers of a cache that must grow and cannot.
struct GrowthFailure {
    uint32_t position, tokens;       // tokens in the cache, and how many more were to come
    uint64_t bytes, available_bytes; // what growing takes, with the layer that is being copied; what there is
};
[[noreturn]] void fail_growth(const GrowthFailure& failure, std::string_view where);

// What was computed is not finite.
struct NonFinite : Error {
    using Error::Error;
};

// Throws that for logits; `where` names the stored vector that shows it first, if one does.
[[noreturn]] void fail_nonfinite(const std::optional<std::string>& where);

} // namespace tq
