// Code that all Forwards share: the shape of the cache that options ask for, short forms of run(), and the bytes of a token in
// the cache. Recurrent layers take none, and their states are counted by Config::state_bytes().
#include "model/forward.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {

static uint32_t last_attention_layer(const Config& c) {
    uint32_t layer = c.num_hidden_layers - 1;
    while (c.is_recurrent(layer)) layer--;
    return layer;
}

// The layers with attention that keep a window.
static uint32_t layers_with_window(const Config& c, const KvOptions& kv) {
    uint32_t count = 0;
    for (uint32_t layer = 0; kv.window != 0 && layer < c.cache_layers(); layer++)
        count += !c.is_recurrent(layer) && kv.at(layer, c.num_hidden_layers).coded();
    return count;
}

Cache::Shape cache_shape(const ForwardOptions& o, const Config& c) {
    const uint32_t window = layers_with_window(c, o.kv) != 0 ? o.kv.window : 0;
    return {.slots = o.slots,
            .pages = o.pages(),
            .context_size = o.context_size,
            .window_tokens = window,
            .recurrent = c.has_states(),
            .pending = c.has_states() ? o.pending : 0,
            .checkpoint_bytes = o.checkpoint_bytes};
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

std::vector<uint32_t> Forward::run_sampled(uint32_t, uint32_t, uint32_t n, const DeviceSampling&) {
    ENSURE(false, "{} tokens: sampling is not offered", n);
    return {};
}

std::vector<std::vector<uint32_t>> Forward::draft(std::span<const DraftStart> starts, uint32_t, DraftIds, const DraftLogits&) {
    ENSURE(false, "{} drafts: the model has no head for them", starts.size());
    return {};
}

uint64_t kv_window_bytes(const Config& config, const KvOptions& kv) {
    return layers_with_window(config, kv) * kv_window_layer_bytes(kv, config.num_key_value_heads, config.head_dim);
}

uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv) {
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < config.cache_layers(); layer++) {
        const KvTypes types = kv.at(layer, config.num_hidden_layers);
        if (!config.is_recurrent(layer))
            bytes += config.num_key_value_heads *
                     (kv_vector_bytes(types.k, config.head_dim) + kv_vector_bytes(types.v, config.head_dim));
    }
    return bytes;
}

void check_kv(const KvOptions& kv, const Config& config) {
    const auto count = int(config.num_hidden_layers);
    check_kv(kv, config.num_hidden_layers);
    for (const KvLayers& e : kv.layers) {
        bool any = kv.layer_count != 0; // a file that names all layers
        for (int layer = e.first + (e.first < 0 ? count : 0); layer <= e.last + (e.last < 0 ? count : 0); layer++)
            any = any || !config.is_recurrent(uint32_t(layer));
        if (!any)
            fail("{} recurrent, and store{} neither keys nor values: name layers with attention, of which the last is {}",
                 e.first == e.last ? fmt::format("layer {} is", e.first) : fmt::format("layers {} to {} are", e.first, e.last),
                 e.first == e.last ? "s" : "", last_attention_layer(config));
    }
}

void fail_nonfinite(const std::optional<std::string>& where) {
    throw NonFinite(
        fmt::format("the model computed values that are not finite: first seen in {}. The file may be damaged, or its "
                    "values overflow this cache type: try -ctk f32 -ctv f32",
                    where.value_or("the logits")));
}

} // namespace tq
