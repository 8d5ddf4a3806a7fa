// Rows of the kernels on activations: broadcast, rms_norm, swiglu and q_norm_rope.
// A recording is made for more tokens than the context says, as in a real pass, where one recording serves all counts up to its
// own. A kernel that takes the count from anywhere but the context writes behind the result, where check() finds it.
#include "model/reference/kernels.h"
#include "model/rope.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace tq::conformance {
namespace {

constexpr float activations_eps = 0.01f; // a model's would be lost in the limits

// Checks all rows, then rows as in the head: every other one, from the last on.
Outcome rms_norm(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t tokens) {
    const auto x = rig.random.normals(size_t(tokens) * cols), w = rig.random.normals(cols);
    std::vector<float> want(x.size()), want_in_head;
    ref::rms_norm(rig.pool, want, x, w, activations_eps);
    std::vector<uint32_t> requested;
    for (uint32_t end = tokens; end > 0; end -= std::min(end, 2u)) {
        requested.push_back(end - 1);
        const auto row = std::span(want).subspan(size_t(end - 1) * cols, cols);
        want_in_head.insert(want_in_head.end(), row.begin(), row.end());
    }
    std::vector<float> apart = rig.random.normals(x.size() * 2); // each row with as many columns before it
    const Buffer y = rig.output(x.size()), in_head = rig.output(want_in_head.size()), x_buffer = rig.upload(x),
                 y_apart = rig.output(apart), w_buffer = rig.upload(w), context = rig.context(7, tokens),
                 head = rig.head_context(requested);
    rig.run(tuning, context, tokens + 5, 128, [&](gpu::Pass& pass) {
        gpu::rms_norm(pass, y, x_buffer, w_buffer, cols, activations_eps);
        gpu::rms_norm(pass, y_apart, x_buffer, w_buffer, cols, activations_eps, false, gpu::Columns{2 * cols, cols});
    });
    for (uint32_t t = 0; t < tokens; t++)
        std::copy_n(want.begin() + ptrdiff_t(t) * cols, cols, apart.begin() + (2 * ptrdiff_t(t) + 1) * cols);
    rig.run(tuning, head, uint32_t(requested.size()) + 5, 128,
            [&](gpu::Pass& pass) { gpu::rms_norm(pass, in_head, x_buffer, w_buffer, cols, activations_eps, true); });
    return worse(rig.check(y_apart, apart, 1e-6), worse(rig.check(y, want, 1e-6), rig.check(in_head, want_in_head, 1e-6)));
}

// The squares of the second of three tokens exceed fp32: it becomes NaN, which is reported, and its neighbours are unchanged.
Outcome rms_norm_overflow(Rig& rig, const gpu::Tuning& tuning, uint32_t cols) {
    auto x = rig.random.normals(size_t(3) * cols);
    for (uint32_t i = 0; i < cols; i++) x[cols + i] = std::copysign(3e19f, x[cols + i]);
    const Buffer y = rig.output(x.size()), x_buffer = rig.upload(x), w_buffer = rig.upload(std::vector(cols, 1.0f)),
                 context = rig.context(0, 3);
    rig.run(tuning, context, 3, 128, [&](gpu::Pass& pass) { gpu::rms_norm(pass, y, x_buffer, w_buffer, cols, activations_eps); });
    const std::vector<uint32_t> words = rig.read(y);
    for (uint32_t i = 0; i < 3 * cols; i++)
        if (std::isnan(std::bit_cast<float>(words[i])) != (i / cols == 1))
            return {false, 1, 0, fmt::format("element {} of 3 x {} is {}", i, cols, std::bit_cast<float>(words[i]))};
    return {};
}

// The limit is that of exp and of a division, which Vulkan lets err by some units in the last place.
Outcome swiglu(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t tokens) {
    const auto gate = rig.random.normals(size_t(cols) * tokens, 4), up = rig.random.normals(gate.size());
    auto want = gate;
    ref::swiglu(rig.pool, want, up);
    std::vector<float> pairs;
    for (size_t i = 0; i < gate.size(); i++) pairs.insert(pairs.end(), {gate[i], up[i]});
    const Buffer y = rig.output(gate.size()), y_of_pairs = rig.output(gate.size()), gate_buffer = rig.upload(gate),
                 up_buffer = rig.upload(up), pairs_buffer = rig.upload(pairs), context = rig.context(0, tokens);
    rig.run(tuning, context, tokens + 5, 128, [&](gpu::Pass& pass) {
        gpu::swiglu(pass, y, gate_buffer, up_buffer, cols);
        gpu::swiglu_pairs(pass, y_of_pairs, pairs_buffer, cols);
    });
    return worse(rig.check(y, want, 1e-5), rig.check(y_of_pairs, want, 1e-5));
}

// A copy is exact, so the limit is 0.
Outcome broadcast(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t tokens) {
    const std::vector<float> x = rig.random.normals(cols);
    std::vector<float> want(size_t(tokens) * cols);
    ref::broadcast(want, x);
    const Buffer x_buffer = rig.upload(x), y = rig.output(want.size()), context = rig.context(0, tokens);
    rig.run(tuning, context, tokens + 2, 128, [&](gpu::Pass& pass) { gpu::broadcast(pass, y, x_buffer, cols); });
    return rig.check(y, want, 0);
}

struct Heads {
    uint32_t head_dim, heads, tokens, position;
    uint32_t conditioned_kv_heads = 0; // 0: not conditioned
    bool normed = true;
    uint32_t rotary_dim = 0; // Config::rotary_dim
};

// The output has room for two tokens more than there are, and for page scores of one page more, all poison. The recording is for
// that greater number, as in a real pass, and the count of tokens comes from the context at run time. Queries and page scores are
// compared with limits of their own, since page scores are sums over channels.
Outcome q_norm_rope(Rig& rig, const gpu::Tuning& tuning, const Heads& at, KvType keys, RotationKind rotation) {
    const uint32_t d = at.head_dim;
    Config config{.vocab_size = 1,
                  .hidden_size = 64,
                  .intermediate_size = 64,
                  .num_hidden_layers = 1,
                  .num_attention_heads = 1,
                  .num_key_value_heads = 1,
                  .head_dim = d,
                  .max_position_embeddings = 1 << 16,
                  .rope_theta = 1e6f,
                  .rms_norm_eps = 1e-6f};
    config.rotary_dim = at.rotary_dim;
    const auto rope = rope_table(config, at.position + at.tokens);
    const auto q = rig.random.normals(size_t(at.tokens) * at.heads * d), w = rig.random.normals(d);
    const gpu::CacheCodec codec(rig.device, {keys, {}, make_rotation(rotation, 3, KvSide::key, d, keys)});
    const float scale = 1 / std::sqrt(float(d)) / (is_turboquant(keys) ? codec.rotation.gain() : 1);
    const HeadConditions conditions = random_conditions(rig.random, at.conditioned_kv_heads, d);
    auto want = q;
    std::vector<host::Row> rows(at.tokens);
    for (uint32_t t = 0; t < at.tokens; t++) rows[t] = {0, at.position + t};
    host::PageScores page_scores;
    const auto norm_eps = at.normed ? std::optional(activations_eps) : std::nullopt;
    ref::q_norm_rope(rig.pool, want, w, {rope, rows, at.rotary_dim}, at.heads, norm_eps, scale,
                     is_turboquant(keys) ? &codec.rotation : nullptr, conditions, &page_scores);

    const uint32_t max = at.tokens + 2; // of the recording
    std::vector<float> content = q;
    content.resize(size_t(max) * at.heads * d, std::bit_cast<float>(poison));
    const gpu::PageScores scores_at{uint32_t(content.size()), page_scores.pages + 1};
    content.resize(content.size() + gpu::page_score_floats(max, at.heads, scores_at.pages), std::bit_cast<float>(poison));
    const Buffer y = rig.output(content), w_buffer = rig.upload(gpu::head_norm_floats(w, conditions)),
                 context = rig.context(at.position, at.tokens, rope, config.rotary());
    rig.run(tuning, context, max, d, [&](gpu::Pass& pass) {
        pass.rotary_dim = at.rotary_dim;
        gpu::q_norm_rope(pass, y, scores_at, {w_buffer, at.conditioned_kv_heads, !conditions.empty()}, at.heads, norm_eps, codec);
    });
    const std::vector<uint32_t> words = rig.read(y);
    std::vector<float> scores, right_scores;
    for (size_t query = 0; query < size_t(at.tokens) * at.heads && !page_scores.empty(); query++)
        for (uint32_t page = 0; page < pages_of(rows[query / at.heads].position + 1); page++) {
            scores.push_back(std::bit_cast<float>(words[scores_at.at + query * scores_at.pages + page]));
            right_scores.push_back(page_scores.of(query)[page]);
        }
    Outcome outcome = rig.check(y, want, 2e-6);
    if (!scores.empty()) outcome = worse(outcome, compare(scores, right_scores, 1e-5));
    return outcome;
}

} // namespace

void add_activations(Rows& rows, const Capabilities& device) {
    for (const NamedTuning& variant : variants(device)) {
        const gpu::Tuning tuning = variant.tuning;
        for (const uint32_t cols : {32u, 96u, 1024u, 5120u})
            for (const uint32_t tokens : {1u, 3u, 8u})
                rows.push_back({"rms_norm", variant.name, fmt::format("{} columns, {} tokens", cols, tokens),
                                [=](Rig& rig) { return rms_norm(rig, tuning, cols, tokens); }});
        rows.push_back(
            {"rms_norm", variant.name, "squares that overflow", [=](Rig& rig) { return rms_norm_overflow(rig, tuning, 96); }});
        for (const auto& [cols, tokens] : {std::pair{32u, 1u}, {96u, 3u}, {768u, 8u}, {17408u, 2u}})
            rows.push_back({"swiglu", variant.name, fmt::format("{} columns, {} tokens", cols, tokens),
                            [=, cols = cols, tokens = tokens](Rig& rig) { return swiglu(rig, tuning, cols, tokens); }});
        for (const auto& [cols, tokens] : {std::pair{64u, 1u}, {384u, 3u}, {3584u, 8u}})
            rows.push_back({"broadcast", variant.name, fmt::format("{} columns, {} tokens", cols, tokens),
                            [=, cols = cols, tokens = tokens](Rig& rig) { return broadcast(rig, tuning, cols, tokens); }});
        for (const uint32_t d : {64u, 128u, 256u})
            for (const Heads& at : {Heads{d, 1, 1, 0},
                                    {d, 5, 3, 1000},
                                    {d, 16, 2, 31},
                                    {d, 16, 2, 31, 4},
                                    {d, 5, 2, 511, 5},
                                    {d, 2, 2, 9215, 2}, // more pages than a subgroup has lanes
                                    {d, 7, 2, 77, 0, false},
                                    {d, 3, 2, 255, 3, true, d / 4}})
                for (const auto& [keys, rotation] : {std::pair(KvType::f16, RotationKind::wht),
                                                     {KvType::tq4, RotationKind::wht},
                                                     {KvType::tq4, RotationKind::haar}})
                    rows.push_back(
                        {.kernel = "q_norm_rope",
                         .variant = fmt::format("{}, for keys {} {}", variant.name, name(keys), name(rotation)),
                         .shape = fmt::format("head_dim {}, {} heads, {} tokens at {}{}{}", d, at.heads, at.tokens, at.position,
                                              at.conditioned_kv_heads == 0
                                                  ? ""
                                                  : fmt::format(", conditions of {} kv heads", at.conditioned_kv_heads),
                                              at.normed ? "" : ", without a norm") +
                                  (at.rotary_dim == 0 ? "" : fmt::format(", RoPE on {} channels", at.rotary_dim)),
                         .run = [=, keys = keys,
                                 rotation = rotation](Rig& rig) { return q_norm_rope(rig, tuning, at, keys, rotation); },
                         .full_only = at.conditioned_kv_heads != 0 && rotation == RotationKind::haar});
    }
}

} // namespace tq::conformance
