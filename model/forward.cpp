#include "model/forward.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {

// Even, so that every kv head's part of a cache of fp16 scales begins at a 32-bit word. The last step may exceed the context.
static uint32_t whole_steps(uint64_t tokens, uint32_t context_size, uint32_t step) {
    const uint64_t even = uint64_t(step) + step % 2, most = uint64_t(context_size) + context_size % 2;
    return uint32_t(even == 0 ? most : std::min(most, (tokens + even - 1) / even * even));
}

uint32_t ForwardOptions::first_capacity() const { return whole_steps(4ull * cache_step, context_size, cache_step); }
uint32_t ForwardOptions::last_capacity() const { return whole_steps(context_size, context_size, 0); }
uint32_t ForwardOptions::next_capacity(uint32_t capacity, uint32_t needed) const {
    return whole_steps(std::max<uint64_t>(needed, uint64_t(capacity) + capacity / 2), context_size, cache_step);
}

bool Forward::run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) {
    for (uint32_t i = 0; i < ids.size(); i++) {
        each(i, run(ids.subspan(i, 1)));
        if (progress && !progress(i + 1, uint32_t(ids.size()))) return false;
    }
    return true;
}

std::vector<uint32_t> Forward::run_sampled(uint32_t, uint32_t n, const DeviceSampling&) {
    ENSURE(false, "{} tokens: sampling is not offered", n);
    return {};
}

StoredSide Forward::stored(uint32_t layer, KvSide) {
    ENSURE(false, "layer {}: what is stored is not offered", layer);
    return {{}, 0, 0};
}

void Forward::restore(uint32_t tokens, const StoredSource&) { ENSURE(false, "{} tokens: restoring is not offered", tokens); }

uint64_t kv_window_bytes(const Config& config, const KvOptions& kv) {
    return kv_window_bytes(kv, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
}

uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv) {
    return kv_bytes_per_token(kv, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
}

void fail_growth(const GrowthFailure& f, std::string_view where) {
    const double mib = 1 << 20;
    fail_out_of_memory("the KV cache holds {} tokens, and for {} more it needs another {:.1f} MiB, but {} has only {:.1f} MiB "
                       "left. Nothing is lost: a shorter conversation can continue, and for a longer one start with smaller "
                       "cache types (-ctk, -ctv), a smaller context (-c) or a smaller model",
                       f.position, f.tokens, double(f.bytes) / mib, where, double(f.available_bytes) / mib);
}

void fail_nonfinite(const std::optional<std::string>& where) {
    throw NonFinite(
        fmt::format("the model computed values that are not finite: first seen in {}. The file may be damaged, or its "
                    "values overflow this cache type: try -ctk f32 -ctv f32",
                    where.value_or("the logits")));
}

} // namespace tq
