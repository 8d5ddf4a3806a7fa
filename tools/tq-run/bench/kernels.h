// The cache's kernels alone, in the shape of one layer of a model: storing keys and values, and the attention of one token.
#pragma once
#include "model/config.h"
#include "model/kv/options.h"
#include "runtime/device.h"
#include "tools/tq-run/bench/arguments.h"
#include <cstdint>
#include <memory>
#include <vector>

namespace tq::bench {

struct CacheShape {
    uint32_t heads, kv_heads, head_dim;
    KvOptions kv;

    uint64_t token_bytes() const; // of keys and values, with their scales
    Config config() const;        // of a model of one such layer
};
inline constexpr float cache_eps = 1e-6f; // of the norms of queries and keys

// Normally distributed inputs, the same on every machine: keys and values of first_block tokens, the query of one.
struct CacheInput {
    std::vector<float> k, v; // [first_block][kv_heads][head_dim]
    std::vector<float> q;    // [heads][head_dim]

    explicit CacheInput(const CacheShape& shape);
};

// Tokens that are stored at once; the cache is filled by repetition of these.
inline constexpr uint32_t first_block = 256;

class CacheKernels {
  public:
    virtual ~CacheKernels() = default;

    virtual void fill(uint32_t length) = 0;                    // stores `length` tokens
    virtual std::vector<float> attention(uint32_t length) = 0; // y [heads][head_dim] of a token that sees `length` of them
    // Seconds of one call: keys and values of `tokens` tokens are stored, or the attention of the latest attention() again.
    virtual double append_seconds(uint32_t tokens) = 0;
    virtual double attention_seconds() = 0;
};

// `length`: the most that fill() is called with. Throw Error when memory is too short for it.
std::unique_ptr<CacheKernels> make_gpu_kernels(Device& device, const CacheShape& shape, uint32_t length);
std::unique_ptr<CacheKernels> make_cpu_kernels(const CacheShape& shape, uint32_t length, uint32_t threads);

// attention(length) by the plain loops of model/reference/kernels.h.
std::vector<float> reference_attention(const CacheShape& shape, uint32_t length);

// `work` in seconds a call: called as often as it takes to time it, which it is told.
double seconds_per_call(const std::function<void(uint32_t times)>& work);

int run_kernels(const Arguments& arguments, Console& console);

} // namespace tq::bench
