#include "model/forward.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {

Cache::Shape cache_shape(const ForwardOptions& o, uint32_t layers) {
    return {o.slots, o.pages(), o.context_size, o.kv.layers_with_window(layers) != 0 ? o.kv.window : 0};
}

uint32_t ForwardOptions::pages() const {
    const uint64_t all = uint64_t(slots) * pages_of(context_size);
    return uint32_t(cache_tokens == 0 ? all : std::min<uint64_t>(all, pages_of(cache_tokens)));
}

std::span<const float> Forward::run(std::span<const uint32_t> ids, const Progress& progress) {
    std::span<const float> last;
    const Span span{0, ids, Span::Logits::last};
    const bool done = run(
        std::span(&span, 1), [&](size_t, uint32_t, std::span<const float> logits) { last = logits; }, progress);
    return done ? last : std::span<const float>();
}

bool Forward::run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) {
    const Span span{0, ids, Span::Logits::all};
    return run(
        std::span(&span, 1), [&](size_t, uint32_t i, std::span<const float> logits) { each(i, logits); }, progress);
}

std::vector<uint32_t> Forward::run_sampled(uint32_t, uint32_t n, const DeviceSampling&) {
    ENSURE(false, "{} tokens: sampling is not offered", n);
    return {};
}

uint64_t kv_window_bytes(const Config& config, const KvOptions& kv) {
    return kv_window_bytes(kv, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
}

uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv) {
    return kv_bytes_per_token(kv, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
}

void fail_nonfinite(const std::optional<std::string>& where) {
    throw NonFinite(
        fmt::format("the model computed values that are not finite: first seen in {}. The file may be damaged, or its "
                    "values overflow this cache type: try -ctk f32 -ctv f32",
                    where.value_or("the logits")));
}

} // namespace tq
