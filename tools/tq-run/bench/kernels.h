// Times the cache's kernels alone, in the shape of a model's layer: storing keys and values, and the attention of one token.
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
    Config config() const;        // of a model with one layer of this shape
};
inline constexpr float cache_eps = 1e-6f; // of the norms of queries and keys

// Normally distributed inputs, the same on every machine: keys and values of first_block tokens, the query of one.
struct CacheInput {
    std::vector<float> k, v; // [first_block][kv_heads][head_dim]
    std::vector<float> q;    // [heads][head_dim]

    explicit CacheInput(const CacheShape& shape);
};

// The tokens that are stored at once; the cache is filled by repeating these.
inline constexpr uint32_t first_block = 256;

class CacheKernels {
  public:
    virtual ~CacheKernels() = default;

    virtual void fill(uint32_t length) = 0;                    // stores `length` tokens
    virtual std::vector<float> attention(uint32_t length) = 0; // y [heads][head_dim] of a token that attends to `length` tokens
    // The seconds of one call: storing keys and values of `tokens` tokens; or repeating the latest attention().
    virtual double append_seconds(uint32_t tokens) = 0;
    virtual double attention_seconds() = 0;
};

// `length`: the greatest argument of fill(). Throw Error when memory is too small for it.
std::unique_ptr<CacheKernels> make_gpu_kernels(Device& device, const CacheShape& shape, uint32_t length);
std::unique_ptr<CacheKernels> make_cpu_kernels(const CacheShape& shape, uint32_t length, uint32_t threads);

// Computes attention(length) by the plain loops of model/reference/kernels.h.
std::vector<float> reference_attention(const CacheShape& shape, uint32_t length);

// Returns the seconds of one call of a kernel. work(times) makes that many calls; `times` grows until they can be timed.
double seconds_per_call(const std::function<void(uint32_t times)>& work);

int run_kernels(const Arguments& arguments, Console& console);

} // namespace tq::bench
