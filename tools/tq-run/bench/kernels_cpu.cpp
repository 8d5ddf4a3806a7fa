#include "model/cpu/kernels.h"
#include "model/reference/kernels.h"
#include "model/rope.h"
#include "tools/tq-run/bench/kernels.h"
#include <algorithm>
#include <cmath>

namespace tq::bench {
namespace {

// The buffers of both the plain and the fast kernels.
struct HostCache {
    CacheShape shape;
    CacheInput input;
    std::vector<host::LayerCache> layers; // one
    std::vector<float> rope, ones;

    HostCache(const CacheShape& shape, uint32_t length)
        : shape(shape), input(shape), rope(rope_table(shape.config(), std::max(length, first_block))),
          ones(shape.head_dim, 1.0f) {
        const uint32_t capacity = std::max(length, first_block);
        layers.push_back({{shape.kv.codec(0, 1, KvSide::key, shape.head_dim), shape.kv_heads, capacity},
                          {shape.kv.codec(0, 1, KvSide::value, shape.head_dim), shape.kv_heads, capacity}});
    }
    const host::LayerCache& cache() const { return layers[0]; }
    std::span<const float> rows(const std::vector<float>& x, uint32_t tokens) const {
        return std::span(x).first(size_t(tokens) * shape.kv_heads * shape.head_dim);
    }
    const Rotation* rotation() const { return is_rotated(shape.kv.k) ? &cache().k.codec.rotation : nullptr; }
    float q_scale() const { return 1 / std::sqrt(float(shape.head_dim)) / (rotation() != nullptr ? rotation()->gain() : 1); }
};

class CpuKernels final : public CacheKernels {
  public:
    CpuKernels(const CacheShape& shape, uint32_t length, uint32_t threads)
        : host_(shape, length), pool_(threads), y_(host_.input.q.size()) {}

    void fill(uint32_t length) override {
        const uint32_t block = std::min(length, first_block);
        append(block);
        host::repeat(host_.layers, block, length);
    }

    std::vector<float> attention(uint32_t length) override {
        q_ = host_.input.q;
        position_ = length - 1;
        cpu::q_norm_rope(pool_, q_, host_.ones, {host_.rope, position_}, host_.shape.heads, cache_eps, host_.q_scale(),
                         host_.rotation());
        attend();
        return y_;
    }

    double append_seconds(uint32_t tokens) override {
        return seconds_per_call([&](uint32_t times) {
            for (uint32_t i = 0; i < times; i++) append(tokens);
        });
    }

    double attention_seconds() override {
        return seconds_per_call([&](uint32_t times) {
            for (uint32_t i = 0; i < times; i++) attend();
        });
    }

  private:
    void append(uint32_t tokens) {
        cpu::kv_append(pool_, host_.cache(), host_.rows(host_.input.k, tokens), host_.rows(host_.input.v, tokens), host_.ones,
                       {host_.rope, 0}, cache_eps);
    }
    void attend() { cpu::attention(pool_, y_, q_, host_.cache(), host_.shape.heads, position_); }

    HostCache host_;
    ThreadPool pool_;
    std::vector<float> q_, y_;
    uint32_t position_ = 0;
};

} // namespace

std::unique_ptr<CacheKernels> make_cpu_kernels(const CacheShape& shape, uint32_t length, uint32_t threads) {
    return std::make_unique<CpuKernels>(shape, length, threads);
}

std::vector<float> reference_attention(const CacheShape& shape, uint32_t length) {
    HostCache host(shape, length);
    ThreadPool pool;
    const uint32_t block = std::min(length, first_block);
    ref::kv_append(pool, host.cache().k, host.rows(host.input.k, block), host.ones, {host.rope, 0}, cache_eps);
    ref::kv_append(pool, host.cache().v, host.rows(host.input.v, block), {}, {host.rope, 0}, cache_eps);
    host::repeat(host.layers, block, length);
    std::vector<float> q = host.input.q, y(q.size());
    ref::q_norm_rope(pool, q, host.ones, {host.rope, length - 1}, shape.heads, cache_eps, host.q_scale(), host.rotation());
    ref::attention(pool, y, q, host.cache(), shape.heads, length - 1);
    return y;
}

} // namespace tq::bench
