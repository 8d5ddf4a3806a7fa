// One model on one device with one KV cache: token ids in, logits out. Implemented three times: as plain loops in
// model/reference, the place to begin reading, in model/cpu and in model/gpu.
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

// Called after each block of a long run, and on a device also between the submissions of one block, with the tokens done so
// far; returning false stops the run there.
using Progress = std::function<bool(uint32_t done, uint32_t total)>;

// Called with the index of an id and the logits [vocab_size] that follow it, which are valid during the call.
using EachLogits = std::function<void(uint32_t i, std::span<const float> logits)>;

// Called by run(), not by run_all() or run_sampled(), with the intermediate results of each block [tokens][cols], in the order
// of their computation: "embed", "layer 3 q", "output_norm", "logits" and so on. The CPU and the devices have the same names
// and order; the reference has ReferenceOptions instead.
using Tap = std::function<void(std::string_view name, std::span<const float> values)>;

struct ForwardOptions {
    KvOptions kv;
    uint32_t context_size = 0; // maximum tokens in the cache; at least 1
    uint32_t threads = 0;      // of the CPU path; 0 = all cores
    uint32_t batch_size = 0;   // tokens per prefill block; 0 = the implementation's default
    Tap tap = {};              // slow; empty: off
    uint32_t cache_step = 256; // tokens; the cache begins with four steps and grows by whole ones. 0: full size at once

    uint32_t first_capacity() const; // initial capacity of the cache, in tokens
    uint32_t last_capacity() const;  // capacity for context_size tokens
    // Returns the next capacity that holds `needed` tokens: at least one and a half times the current one, so that all copies
    // together are at most twice the final size; but no more than the last.
    uint32_t next_capacity(uint32_t capacity, uint32_t needed) const;
};

class Forward {
  public:
    virtual ~Forward() = default;

    // Appends ids at positions position(), position() + 1, ... and returns the logits [vocab_size] that follow the last one,
    // valid until the next call. Stopped by `progress`: returns an empty span, and position() is where it stopped. ids must not
    // be empty and must fit the context (ENSURE). Throws OutOfMemory, before anything is run, when the cache cannot grow enough
    // for them; its content is kept. Throws Error when the device is lost, the model's file is truncated (base/mapped_file.h)
    // or, with position() where the run began, a value is not finite.
    virtual std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress = {}) = 0;

    // Maximum tokens of one run_sampled(); 0 where it is not available, or no faster than run() and sampling on the host.
    virtual uint32_t max_sampled() const { return 0; }

    // Runs `id`, samples the next token, runs that, and so on, without the host: returns the n sampled tokens, the last of
    // which is not run. 1 <= n <= SAMPLING_STEPS, with n random words; excluded ids are within the model's vocabulary (ENSURE).
    // Position advances by n. Returns fewer, with position() after the last that was run, where the logits that follow are not
    // finite: continuing from there throws as run() does.
    virtual std::vector<uint32_t> run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling);

    // Like run(), with the logits that follow every one of the ids, in order. Returns false where `progress` stopped it. An
    // implementation without a faster way runs them one by one.
    virtual bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress = {});

    // Forgets every position from n on (n <= position()). Exact: the next run behaves as if those positions had never been run.
    virtual void truncate(uint32_t n) = 0;

    // For measurements at depth, whatever the stored values: as if n tokens had been run, by repeating the stored vectors of
    // the first position(), an even number above 0 (n >= position()). Throws OutOfMemory as run() does.
    virtual void repeat_to(uint32_t n) = 0;

    // Returns the content of the cache for one side of a layer, at the first position() tokens: the same bytes in every
    // implementation. Throws Error when the device is lost.
    virtual StoredSide stored(uint32_t layer, KvSide side);

    // Replaces the content of the cache with `tokens` tokens (at most context_size()) that stored() returned from a cache of
    // the same types and model, in this implementation or another: the next run continues after them. `source` is called for
    // each layer's keys and then its values, in order. Throws OutOfMemory as run() does, and what `source` throws; the cache is
    // then empty.
    virtual void restore(uint32_t tokens, const StoredSource& source);

    // Records the passes again, after a change of Device::profile. Does nothing on the CPU.
    virtual void record_again() {}

    virtual uint32_t position() const = 0;                       // tokens in the cache
    virtual uint32_t context_size() const = 0;                   // maximum tokens in the cache
    virtual uint32_t capacity() const { return context_size(); } // tokens that it has memory for now
    virtual const KvOptions& kv() const = 0;
    virtual uint64_t kv_bytes_per_token() const = 0; // all layers, keys and values, scales included
};

// Returns the size in bytes of one token in a cache of these types: all layers, keys and values, scales included.
uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv);
// Returns the size in bytes of all layers' full-precision windows, which come on top, whatever the context; 0 where kv.window is
// 0.
uint64_t kv_window_bytes(const Config& config, const KvOptions& kv);

// The numbers of a cache that must grow and cannot.
struct GrowthFailure {
    uint32_t position, tokens;       // tokens in the cache, and tokens to be added
    uint64_t bytes, available_bytes; // needed for growing, with the layer that is being copied; available
};
[[noreturn]] void fail_growth(const GrowthFailure& failure, std::string_view where);

// Thrown when a computed value is not finite.
struct NonFinite : Error {
    using Error::Error;
};

// Throws NonFinite for logits; `where` names the first stored vector that is not finite, if any.
[[noreturn]] void fail_nonfinite(const std::optional<std::string>& where);

} // namespace tq
