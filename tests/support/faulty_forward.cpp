#include "tests/support/faulty_forward.h"
#include "base/half.h"
#include "model/reference/forward.h"
#include <algorithm>

namespace tq::test {
namespace {

bool swaps(Fault fault, KvType type) {
    return fault == Fault::swapped_everywhere || (fault == Fault::swapped_unless_f32 && type != KvType::f32) ||
           (fault == Fault::swapped_if_coded && is_coded(type));
}

// Reorders [tokens][heads][head_dim] as if it were [heads][tokens][head_dim].
void swap(std::span<float> x, size_t heads, size_t d) {
    const size_t tokens = x.size() / heads / d;
    const std::vector<float> right(x.begin(), x.end());
    for (size_t t = 0; t < tokens; t++)
        for (size_t head = 0; head < heads; head++) std::copy_n(&right[(head * tokens + t) * d], d, &x[(t * heads + head) * d]);
}

// Changes the stored data of a block's tokens.
void spoil(Fault fault, const host::Pass& pass, const host::LayerCache& cache, KvSide which) {
    const host::CacheSide& side = cache.side(which);
    const KvType type = side.codec.type;
    if (!is_coded(type)) return;
    const auto shift = [](std::span<uint32_t> words) { std::ranges::rotate(words, words.begin() + 1); };
    for (uint32_t head = 0; head < side.heads; head++)
        for (const host::Row row : pass.rows()) {
            const std::span<uint16_t> scales = side.scales(cache.place(row), head);
            const float scale = half_to_float(scales[0]);
            const bool least_squares = side.codec.scale_rule == ScaleRule::least_squares;
            if (is_turboquant(type) && (fault == Fault::scale_twice || (fault == Fault::rule_twice && least_squares)))
                scales[0] = float_to_half(scale * scale);
            if (is_trellis(type) && fault == Fault::trellis_shifted) shift(side.codes(cache.place(row), head));
            if (is_unequal(type) && fault == Fault::quarters_swapped) std::swap(scales[0], scales[1]);
            if (cache.window && code_bits(type) == 3 && fault == Fault::window_shifted)
                shift(cache.window->side(which).codes(cache.window_place(row), head));
        }
}

// Rotates queries back, and again with the next layer's seed.
void rotate_otherwise(Fault fault, const host::Layer& layer, std::span<float> q) {
    const Rotation* right = layer.q_rotation;
    const bool wrong =
        fault == Fault::other_rotation || (fault == Fault::other_haar && right && right->kind == RotationKind::haar);
    if (!right || !wrong) return;
    const size_t d = layer.cache.k.head_dim();
    const Rotation other = make_rotation(right->kind, layer.number + 1, KvSide::key, uint32_t(d));
    for (size_t at = 0; at < q.size(); at += d) {
        rotate_back(q.subspan(at, d), *right);
        rotate(q.subspan(at, d), other);
    }
}

} // namespace

std::unique_ptr<Forward> make_faulty_forward(const Model& model, const KvOptions& kv, uint32_t context_size, Fault fault) {
    const bool conditioned = kv.conditioning.kind != KeyConditioning::Kind::none;
    const auto plant = [=](const host::Pass& pass, std::string_view step, std::span<float> values) {
        const host::Layer* const layer = pass.layer();
        if (!layer) return;
        const host::LayerCache& cache = layer->cache;
        if ((step == "k" && swaps(fault, cache.k.codec.type)) || (step == "v" && swaps(fault, cache.v.codec.type)))
            swap(values, pass.config.num_key_value_heads, pass.config.head_dim);
        if (step == "kv_append")
            for (const KvSide side : {KvSide::key, KvSide::value}) spoil(fault, pass, cache, side);
        if (step == "q") rotate_otherwise(fault, *layer, values);
        if (step == "q" && fault == Fault::conditioned_twice && conditioned && is_coded(cache.k.codec.type))
            for (float& v : values) v *= 2;
    };
    return make_reference_forward(model.config, model.weights, {.kv = kv, .context_size = context_size}, plant);
}

} // namespace tq::test
