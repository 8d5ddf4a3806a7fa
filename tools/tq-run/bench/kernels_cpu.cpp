// The CPU's half of bench --kernels, and the reference for both halves: the same cache layout (host::LayerCache) filled by
// ref::kv_append and read by ref::attention. Norm weights are ones, and there is one slot whose pages are in order.
#include "model/cpu/kernels.h"
#include "model/reference/kernels.h"
#include "model/rope.h"
#include "tools/tq-run/bench/kernels.h"
#include <algorithm>
#include <cmath>

namespace tq::bench {
namespace {

// The buffers of both the plain and the fast kernels.
struct CpuLayer {
    CacheShape shape;
    CacheInput input;
    host::HostCache cache_of_layer; // with one slot
    std::vector<float> rope, ones;
    std::vector<host::Row> first_rows; // of first_block

    // `max`: the greatest argument of fill().
    CpuLayer(const CacheShape& shape, uint32_t max)
        : shape(shape), input(shape),
          cache_of_layer(
              {1, pages_of(std::max(max, first_block)), std::max(max, first_block)}, shape.kv_heads,
              {{shape.kv.codec(0, 1, KvSide::key, shape.head_dim), shape.kv.codec(0, 1, KvSide::value, shape.head_dim)}},
              first_block),
          rope(rope_table(shape.config(), cache_of_layer.shape().context_size)), ones(shape.head_dim, 1.0f) {
        for (uint32_t i = 0; i < first_block; i++) first_rows.push_back({0, i});
        cache_of_layer.reserve(0, first_block); // kernels may be timed before anything was checked
    }
    const host::LayerCache& cache() const { return cache_of_layer.layers()[0]; }
    // Calls append(tokens), which stores the first tokens, and repeats them.
    template <class Append> void fill(uint32_t length, const Append& append) {
        const uint32_t block = std::min(length, first_block);
        cache_of_layer.truncate(0, 0);
        cache_of_layer.reserve(0, std::max(length, first_block));
        append(block);
        cache_of_layer.advance(0, block);
        if (length > block) cache_of_layer.repeat(0, length);
    }
    host::Rope first(uint32_t tokens) const { return {rope, std::span(first_rows).first(tokens)}; }
    std::span<const float> rows(const std::vector<float>& x, uint32_t tokens) const {
        return std::span(x).first(size_t(tokens) * shape.kv_heads * shape.head_dim);
    }
    const Rotation* rotation() const { return is_turboquant(shape.kv.k) ? &cache().k.codec.rotation : nullptr; }
    float q_scale() const { return 1 / std::sqrt(float(shape.head_dim)) / (rotation() != nullptr ? rotation()->gain() : 1); }
};

class CpuKernels final : public CacheKernels {
  public:
    CpuKernels(const CacheShape& shape, uint32_t length, uint32_t threads)
        : host_(shape, length), pool_(threads), y_(host_.input.q.size()) {}

    void fill(uint32_t length) override {
        host_.fill(length, [&](uint32_t tokens) { append(tokens); });
    }

    // The queries are prepared anew each time, because q_norm_rope works in place.
    std::vector<float> attention(uint32_t length) override {
        q_ = host_.input.q;
        row_ = {0, length - 1};
        cpu::q_norm_rope(pool_, q_, host_.ones, {host_.rope, {&row_, 1}}, host_.shape.heads, cache_eps, host_.q_scale(),
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
                       host_.first(tokens), cache_eps);
    }
    void attend() { cpu::attention(pool_, y_, q_, {}, host_.cache(), host_.shape.heads, {&row_, 1}); }

    CpuLayer host_;
    ThreadPool pool_;
    std::vector<float> q_, y_;
    host::Row row_{};
};

} // namespace

std::unique_ptr<CacheKernels> make_cpu_kernels(const CacheShape& shape, uint32_t length, uint32_t threads) {
    return std::make_unique<CpuKernels>(shape, length, threads);
}

std::vector<float> reference_attention(const CacheShape& shape, uint32_t length) {
    CpuLayer host(shape, length);
    ThreadPool pool;
    host.fill(length, [&](uint32_t tokens) {
        ref::kv_append(pool, host.cache(), KvSide::key, host.rows(host.input.k, tokens), host.ones, host.first(tokens),
                       cache_eps);
        ref::kv_append(pool, host.cache(), KvSide::value, host.rows(host.input.v, tokens), {}, host.first(tokens), cache_eps);
    });
    std::vector<float> q = host.input.q, y(q.size());
    const host::Row row{0, length - 1};
    ref::q_norm_rope(pool, q, host.ones, {host.rope, {&row, 1}}, shape.heads, cache_eps, host.q_scale(), host.rotation());
    ref::attention(pool, y, q, {}, host.cache(), shape.heads, {&row, 1});
    return y;
}

} // namespace tq::bench
