// Finds all kernel variants by recording passes into a list (Recorder::list()), with models, caches and experts of every shape
// that matters. Nothing runs, and no device is needed. What is recorded is the real code of the forward pass, so a variant that
// the code can ask for and this list lacks is a shape that is missing here, not a second description that went stale.
// Shapes are reduced to what variants depend on: a head dimension, the ratio of heads, a type, whether there is a window; sizes
// of matrices only as far as the lanes of a row follow from them. Attention is a product of too many of these, so each type has
// one shape, and a few pairs of types have all.
#include "model/gpu/variants.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/experts.h"
#include "model/gpu/gpu_stage.h"
#include "model/gpu/recurrent.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device_profile.h"
#include <algorithm>

namespace tq::gpu {
namespace {

constexpr uint32_t head_dims[] = {64, 128, 256};
constexpr uint32_t groups_of_heads[] = {1, 2, 4, 5, 8, 16}; // query heads per kv head: all of Qwen3's, and none shared
constexpr uint32_t other_groups[] = {3, 6, 7};              // Qwen2's and Llama's
constexpr uint32_t kv_heads = 2, positions = 64;
constexpr float eps = 1e-6f;

// Pairs (k, v) whose attention is compiled in every shape, beside those of the presets. Most of these have a window.
constexpr KvTypes common_pairs[] = {{KvType::f32, KvType::f32},
                                    {KvType::f16, KvType::f16},
                                    {KvType::tq4, KvType::tq4},
                                    {KvType::tq4, KvType::tq3},
                                    {KvType::q8_0, KvType::tq4}};

Buffer floats(uint64_t count) { return Buffer::of_size(4 * count); }

CacheCodec codec_of(KvType type, uint32_t head_dim, RotationKind rotation, ScaleRule rule) {
    std::optional<Buffer> matrix;
    if (rotation == RotationKind::haar && is_turboquant(type)) matrix = floats(uint64_t(head_dim) * head_dim);
    const bool quarters = is_unequal(type) && rotation == RotationKind::wht;
    return {KvCodec{type, rule, {.kind = rotation, .head_dim = head_dim, .quarters = quarters}}, std::move(matrix)};
}

struct CacheKind {
    KvTypes types;
    RotationKind rotation = RotationKind::wht;
    ScaleRule rule = ScaleRule::unbiased;
    bool window = false;
};

constexpr CacheKind kinds_with_window[] = {
    {.types = {KvType::tq4, KvType::tq4}, .window = true},
    {.types = {KvType::tq4, KvType::tq4}, .rotation = RotationKind::haar, .window = true},
    {.types = {KvType::q8_0, KvType::q8_0}, .window = true},
};

DeviceStorage cache_of(const CacheKind& kind, uint32_t head_dim, uint32_t block_tokens) {
    const CacheLayout layout(kind.types, head_dim, kv_heads, 1);
    std::vector<LayerCache> layers;
    layers.push_back({codec_of(kind.types.k, head_dim, kind.rotation, kind.rule),
                      codec_of(kind.types.v, head_dim, kind.rotation, kind.rule),
                      {}});
    layers[0].slices.push_back({floats(layout.words), 0, kv_heads, layout});
    DeviceStorage cache(head_dim, kv_heads, 1, std::move(layers));
    if (!kind.window) return cache;
    const uint32_t tokens = 16, vectors = kv_heads * (block_tokens + kept_window_tokens(tokens));
    cache.layers[0].ring = kv_heads * block_tokens;
    cache.window.emplace(WindowVectors{Buffer::of_size(uint64_t(vectors) * head_dim * 4), tokens, block_tokens});
    return cache;
}

// A model of one layer with biases, small enough for any texel buffer, whose matrices all have one format; if `apart`, gate and
// up are not interleaved.
struct Model {
    Config config{.vocab_size = 256,
                  .hidden_size = 256,
                  .intermediate_size = 256,
                  .num_hidden_layers = 1,
                  .num_attention_heads = 4,
                  .num_key_value_heads = kv_heads,
                  .head_dim = 128,
                  .max_position_embeddings = positions,
                  .rope_theta = 1e6f,
                  .rms_norm_eps = eps};
    DeviceWeights weights;
    std::vector<HeadNormBuffers> head_norms;
    DeviceStorage cache = cache_of({{KvType::f16, KvType::f16}}, config.head_dim, 1);

    Model(const Tuning& t, GgmlType type, bool apart)
        : weights{matrix(t, type, config.vocab_size, config.hidden_size), {}, floats(config.hidden_size), {}} {
        const uint32_t hidden = config.hidden_size, ffn = config.intermediate_size,
                       q = config.num_attention_heads * config.head_dim, kv = kv_heads * config.head_dim;
        std::vector<Matrix> gate_up;
        if (!apart) gate_up.push_back(matrix(t, type, 2 * ffn, hidden));
        for (uint32_t i = 0; apart && i < 2; i++) gate_up.push_back(matrix(t, type, ffn, hidden));
        weights.layers.push_back({.attn_q = matrix(t, type, q, hidden),
                                  .attn_k = matrix(t, type, kv, hidden),
                                  .attn_v = matrix(t, type, kv, hidden),
                                  .attn_output = matrix(t, type, hidden, q),
                                  .ffn_gate_up = std::move(gate_up),
                                  .ffn_down = matrix(t, type, hidden, ffn),
                                  .attn_norm = floats(hidden),
                                  .ffn_norm = floats(hidden),
                                  .attn_q_norm = {},
                                  .attn_k_norm = {},
                                  .k_bias = {},
                                  .attn_q_bias = floats(q),
                                  .attn_k_bias = floats(kv),
                                  .attn_v_bias = floats(kv)});
        head_norms.push_back({floats(config.head_dim), floats(config.head_dim), 0});
    }

    static Matrix matrix(const Tuning& t, GgmlType type, uint32_t rows, uint32_t cols) {
        Matrix out{.type = type, .rows = rows, .cols = cols, .interleave = t.weight_interleave, .slices = {}};
        out.slices.push_back({Buffer::of_size(device_matrix_bytes(type, rows, cols, t.weight_interleave)), 0, rows});
        return out;
    }
};

// Records the passes of recordings.cpp: of separate rows, of blocks, short and whole, and of heads.
void record_model(Recorder& recorder, const Tuning& t, const Model& model) {
    const Config& c = model.config;
    const ForwardOptions options = with_batch_size({.kv = {.k = KvType::f16, .v = KvType::f16}, .context_size = 4096}, t);
    const Scratch s =
        make_scratch([](const char*, uint64_t bytes) { return Buffer::of_size(bytes); }, ScratchBytes(c, t, options));
    const Buffer context = Buffer::of_size(context_layout(c, options).bytes()), ids = floats(options.batch_size),
                 logits = floats(uint64_t(GpuStage::max_head_rows) * c.vocab_size);
    const Network net(c, model.weights, model.head_norms, model.cache);
    const Activations x(c, s, ids, logits);
    Taps none;
    const auto record = [&](uint32_t rows, bool separate, bool with_layers, bool with_head) {
        const Step step{0, rows};
        ForwardPass pass{{.recorder = recorder,
                          .tuning = t,
                          .context = context,
                          .tokens = rows,
                          .head_dim = c.head_dim,
                          .step = step,
                          .spans = 1,
                          .separate = separate},
                         c,
                         s,
                         none};
        if (with_layers) layers(pass, net, x);
        pass.end_layers();
        pass.in_head = !with_layers;
        if (with_head) head(pass, net, x);
    };
    for (uint32_t rows = 1; rows <= max_separate_rows(options); rows *= 2) {
        record(rows, true, true, true);
        record(rows, true, false, true);
    }
    for (const uint32_t rows : {std::min(t.short_block, options.batch_size), options.batch_size})
        record(rows, false, true, false);
    record(GpuStage::max_head_rows, false, false, true);

    const Step step{0, 1};
    Pass pass{.recorder = recorder, .tuning = t, .context = context, .tokens = 1, .head_dim = c.head_dim, .step = step};
    sample_candidates(pass, s.candidates, s.logits, s.sampling, c.vocab_size);
    sample(pass, ids, s.sampling, s.candidates, c.vocab_size);
    sample_all(pass, ids, s.sampling, s.logits, c.vocab_size);
}

// Records the products of one vector and of a few with matrices of all sizes, on which the lanes of a row depend.
void record_matvecs(Recorder& recorder, const Tuning& t, GgmlType type) {
    constexpr uint32_t cols = 4096, h_floats = cols;
    const Buffer context = Buffer::of_size(1 << 16), x = floats(max_columns * cols);
    for (uint32_t rows = 2; rows == 2 || rows / 2 <= t.matvec_loads; rows *= 2) {
        const Matrix w = Model::matrix(t, type, rows, cols);
        const Buffer y = floats(h_floats + uint64_t(max_columns) * rows + normed_floats(rows));
        for (uint32_t tokens = 1; tokens <= max_columns; tokens *= 2) {
            const Step step{0, tokens};
            Pass pass{.recorder = recorder,
                      .tuning = t,
                      .context = context,
                      .tokens = tokens,
                      .head_dim = 128,
                      .step = step,
                      .spans = 1,
                      .separate = true};
            Inputs inputs{x, x}; // not rounded: tokens are few
            for (const bool accumulate : {false, true}) matmul(pass, y, w, inputs, accumulate);
            if (tokens > 1) continue;
            matvec_gated(pass, y, w, x);
            if (!t.fold_norms) continue;
            const Normed normed = matvec_residual(pass, y, h_floats, w, x, x);
            for (const uint32_t output : {MATVEC_STORE, MATVEC_ADD, MATVEC_GATED})
                matvec_normed(pass, y, w, {x, 0, normed.square_count}, eps, output);
        }
    }
}

// A layer's experts, with all their buffers.
void record_experts(Recorder& recorder, const Tuning& t, GgmlType type, const Experts& e, uint32_t tokens, uint32_t rows) {
    constexpr uint32_t cols = 4096;
    const ExpertBytes bytes(t, e, tokens, cols, rows);
    const Buffer context = Buffer::of_size(1 << 16), x = floats(uint64_t(tokens) * cols), logits = Buffer::of_size(bytes.logits),
                 routes = Buffer::of_size(bytes.routes), both = Buffer::of_size(bytes.gate_up), y = Buffer::of_size(bytes.ffn),
                 rounded = Buffer::of_size(bytes.rounded);
    std::vector<Matrix> pairs, apart;
    pairs.push_back(Model::matrix(t, type, e.count * 2 * rows, cols));
    for (int i = 0; i < 2; i++) apart.push_back(Model::matrix(t, type, e.count * rows, cols));
    const Step step{0, tokens};
    Pass pass{.recorder = recorder, .tuning = t, .context = context, .tokens = tokens, .head_dim = 128, .step = step};
    const Routes of{routes, e};
    route(pass, of, logits);
    for (const auto* gate_up : {&pairs, &apart}) {
        Inputs inputs{x, rounded};
        gated_experts(pass, y, both, *gate_up, inputs, of);
        const Normed normed{x, 0, 1};
        if (tokens == 1 && t.fold_norms) gated_experts(pass, y, both, *gate_up, inputs, of, FoldedNorm{normed, eps});
    }
    add_experts(pass, x, both, of, cols);
}

// Records experts of all sizes, on which the lanes of a row depend, and blocks of many and of few tokens for each.
void record_experts(Recorder& recorder, const Tuning& t, GgmlType type) {
    for (uint32_t rows = 2; rows == 2 || rows / 2 <= t.matvec_loads; rows *= 2)
        record_experts(recorder, t, type, {1, 1}, 1, rows);
    record_experts(recorder, t, type, {1, 1}, t.batch_size, 32);
    record_experts(recorder, t, type, {MAX_EXPERTS, 1}, t.matmul_tokens + 1, 32);
}

// The heads of one layer's cache, and their inputs and outputs.
struct Heads {
    const Tuning& tuning;
    uint32_t head_dim, heads, tokens;
    DeviceStorage cache;
    Buffer context = Buffer::of_size(1 << 16), q, k, v, y, weights, partials;
    Step step;
    uint32_t rotary_dim = 0; // Config::rotary_dim

    Heads(const Tuning& t, const CacheKind& kind, uint32_t head_dim, uint32_t group, uint32_t tokens)
        : tuning(t), head_dim(head_dim), heads(group * kv_heads), tokens(tokens), cache(cache_of(kind, head_dim, tokens)),
          q(floats(uint64_t(tokens) * heads * head_dim)), k(floats(uint64_t(tokens) * kv_heads * head_dim)),
          v(floats(k.bytes() / 4)), y(floats(uint64_t(tokens) * heads * head_dim)),
          weights(floats(head_dim * (head_dim + 1 + 2 * kv_heads))),
          partials(Buffer::of_size(partials_bytes(t, tokens, 1, heads, head_dim, true, true))), step{0, tokens} {}

    Pass pass(Recorder& recorder) const {
        return {.recorder = recorder,
                .tuning = tuning,
                .context = context,
                .tokens = tokens,
                .head_dim = head_dim,
                .step = step,
                .spans = 1,
                .separate = false,
                .block = 0,
                .rotary_dim = rotary_dim};
    }
    void record_attention(Recorder& recorder) const {
        Pass p = pass(recorder);
        for (const Buffer* v_scales : {static_cast<const Buffer*>(nullptr), &weights})
            attention(p, y, partials, q, {}, cache, 0, heads, kv_heads, v_scales);
    }
    void record_cache(Recorder& recorder, bool conditioned) const {
        Pass p = pass(recorder);
        const HeadNorm norm{weights, conditioned ? kv_heads : 0};
        const Buffer* v_scales = conditioned ? &weights : nullptr;
        q_norm_rope(p, q, {}, norm, heads, eps, cache.layers[0].k);
        k_append(p, cache, 0, k, norm, kv_heads, eps);
        v_append(p, cache, 0, v, kv_heads, v_scales);
        keep_window(p, cache, 0, k, norm, v, kv_heads, eps, v_scales);
        for (const KvSide side : {KvSide::key, KvSide::value}) kv_decode(p, y, cache, 0, side, kv_heads);
    }
};

void record_caches(Recorder& recorder, const Tuning& t) {
    for (const uint32_t head_dim : head_dims)
        for (const KvTypeName& type : kv_types)
            for (const RotationKind rotation : {RotationKind::wht, RotationKind::haar})
                for (const bool conditioned : {false, true})
                    Heads(t, {{type.type, values_beside(type.type)}, rotation}, head_dim, 2, 2)
                        .record_cache(recorder, conditioned);
    for (const KvTypeName& type : kv_types)
        for (const bool conditioned : {false, true}) {
            Heads of_hybrid(t, {{type.type, values_beside(type.type)}}, 256, 2, 2);
            of_hybrid.rotary_dim = 64;
            of_hybrid.record_cache(recorder, conditioned);
        }
    for (const KvTypeName& type : kv_types)
        for (const ScaleRule rule : {ScaleRule::norm, ScaleRule::least_squares})
            if (is_turboquant(type.type))
                Heads(t, {{type.type, values_beside(type.type)}, RotationKind::wht, rule}, 128, 2, 2)
                    .record_cache(recorder, false);
    for (const uint32_t head_dim : head_dims)
        for (const CacheKind& kind : kinds_with_window)
            for (const bool conditioned : {false, true}) Heads(t, kind, head_dim, 2, 2).record_cache(recorder, conditioned);
    for (const uint32_t head_dim : head_dims)
        for (const KvPreset& preset : kv_presets)
            Heads(t, {.types = preset.types, .window = preset.window != 0}, head_dim, 2, 2).record_cache(recorder, true);
}

void record_attentions(Recorder& recorder, const Tuning& t) {
    for (const uint32_t tokens : {1u, t.batch_size}) {
        const auto record = [&](const CacheKind& kind, uint32_t head_dim, uint32_t group) {
            Heads(t, kind, head_dim, group, tokens).record_attention(recorder);
        };
        for (const KvTypeName& type : kv_types) record({{type.type, values_beside(type.type)}}, 128, 2);
        for (const uint32_t head_dim : head_dims) {
            for (const uint32_t group : groups_of_heads) {
                for (const KvTypes pair : common_pairs) record({pair}, head_dim, group);
                for (const KvPreset& preset : kv_presets)
                    record({.types = preset.types, .window = preset.window != 0}, head_dim, group);
            }
            for (const uint32_t group : other_groups) record({{KvType::tq4, KvType::tq4}}, head_dim, group);
            record({{KvType::tq4, KvType::tq4}, RotationKind::haar}, head_dim, 2);
            for (const CacheKind& kind : kinds_with_window) record(kind, head_dim, 2);
        }
    }
}

// The kernels that only hybrids have: their variants do not depend on a shape.
void record_recurrent(Recorder& recorder, const Tuning& t) {
    const Recurrent shape{1, 1, 128, 4, true};
    const RecurrentRows at(shape, 1);
    const Buffer rows = floats(at.floats), states = Buffer::of_size(4ull * RecurrentSlot(shape, 0).floats),
                 x = floats(shape.value_size()), weights = floats(4 * (shape.channels() + 1)), context = Buffer::of_size(1 << 16);
    const Step step{0, 1};
    Pass pass{.recorder = recorder, .tuning = t, .context = context, .tokens = 1, .head_dim = shape.head_dim, .step = step};
    const RecurrentStep of{shape, rows, at, states};
    delta_inputs(pass, of, weights, eps);
    delta_rule(pass, x, of);
    gated_norm(pass, x, x, weights, 1, eps);
    split_gates(pass, x, x, rows, shape.value_size());
    apply_gates(pass, x, x, shape.value_size());
    share_gate(pass, x, weights, x, shape.value_size(), shape.value_size());
    states_before(pass, x, x, x, shape.value_size(), 1);
    keep_states(pass, x, rows, shape.value_size(), 1);
}

void record_all(Recorder& recorder, const Tuning& t) {
    for (const GgmlType type : weight_formats)
        for (const bool apart : {false, true}) record_model(recorder, t, Model(t, type, apart));
    for (const GgmlType type : weight_formats) record_matvecs(recorder, t, type);
    for (const GgmlType type : weight_formats) record_experts(recorder, t, type);
    record_caches(recorder, t);
    record_attentions(recorder, t);
    record_recurrent(recorder, t);
}

} // namespace

std::vector<Tuning> all_tunings(const Capabilities& device) {
    std::vector<Tuning> out;
    for (const DeviceProfile& profile : device_profiles()) {
        Capabilities clamped = device;
        profile.clamp(clamped);
        if (&profile != &device_profiles()[0]) clamped.profile = profile.name;
        for (const Tuning& tuning : {choose_tuning(clamped), tuning_for(clamped)})
            if (std::ranges::find(out, tuning) == out.end()) out.push_back(tuning);
    }
    return out;
}

std::vector<Variant> all_variants(std::span<const Tuning> tunings) {
    std::vector<Variant> all = Recorder::list([&](Recorder& recorder) {
        for (const Tuning& tuning : tunings) {
            record_all(recorder, tuning);
            if (!tuning.texel_buffers) continue;
            Tuning plain = tuning; // buffers that are too long for texels are read by the other variants
            plain.texel_range_bytes = 0;
            record_all(recorder, plain);
        }
    });
    std::ranges::stable_sort(all, {}, [](const Variant& variant) { return std::string_view(variant.shader->name); });
    return all;
}

} // namespace tq::gpu
