// Rows of kv_append: the device stores what encode() stores, byte for byte, and nothing else of the cache changes. TwinCache has
// the expected bytes of the whole cache beside the device's, so a write to a wrong place is found, too.
// Keys are normalised and turned before they are stored, and these two steps may round differently than on the CPU. So the fp32
// keys are read from an f32 cache (compared with a limit), and the codes must be those that encode() gives for exactly these.
// Special vectors make rounding visible: components on a threshold (ties), scales halfway between two fp16 numbers
// (halfway_scales), channels that cancel in the dense rotation (cancelled).
#include "model/kv/turboquant.h"
#include "model/reference/kernels.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include "tools/check/conformance/twin_cache.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tq::conformance {
namespace {

// Storage of the side under test.
struct Format {
    KvType type;
    RotationKind rotation = RotationKind::wht;
    ScaleRule rule = KvOptions().scale_rule;

    std::string text() const {
        std::string out = name(type);
        if (rotation != RotationKind::wht) out += fmt::format(" {}", name(rotation));
        if (rule != KvOptions().scale_rule) out += fmt::format(" {}", name(rule));
        return out;
    }
    KvOptions as_values(KvType keys) const { return {.k = keys, .v = type, .rotation = rotation, .scale_rule = rule}; }
    KvOptions as_keys(KvType values) const { return {.k = type, .v = values, .rotation = rotation, .scale_rule = rule}; }
};

// Every kind of vector, in blocks of uneven sizes; then the sequence is truncated at token 18 and other tokens take the places.
Outcome values(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache twin(rig, d, format.as_values(KvType::tq3), 375);
    const Signs& signs = twin.codec(KvSide::value).rotation.signs;
    const auto x = codec_vectors(370 * kv_heads, d, signs, rig.random.bits()), y = codec_vectors(20 * kv_heads, d, signs, 7);
    const auto append = [&](std::span<const float> vectors, uint32_t position, std::span<const uint32_t> blocks) {
        twin.expect(KvSide::value, vectors, position);
        for (const uint32_t tokens : blocks) {
            twin.append(tuning, KvSide::value, vectors.first(size_t(tokens) * kv_heads * d), {}, position);
            vectors = vectors.subspan(size_t(tokens) * kv_heads * d);
            position += tokens;
        }
    };
    append(x, 1, std::array{1u, 3u, 64u, 7u, 1u, 95u, 128u, 64u, 2u, 5u});
    const Outcome first = twin.check();
    append(y, 18, std::array{13u, 7u});
    return worse(first, twin.check());
}

// Tokens of two slots in one pass, across the ends of pages.
Outcome slots(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache twin(rig, d, format.as_values(KvType::tq3), 600);
    for (const bool separate : {false, true}) {
        const uint32_t tokens = separate ? 3 : 20, position[] = {separate ? 255u : 500u, separate ? 511u : 250u};
        const std::vector<float> x = rig.random.normals(size_t(2 * tokens) * kv_heads * d);
        gpu::PassRows rows;
        for (uint32_t slot = 0; slot < 2; slot++) {
            rows.add(slot, position[slot], std::vector<uint32_t>(tokens), 0, separate);
            const size_t half = x.size() / 2;
            twin.expect(KvSide::value, std::span(x).subspan(slot * half, half), position[slot], slot);
        }
        const Buffer x_buffer = rig.upload(x), context = rig.context(rows, twin.tables, twin.rope, twin.rotary());
        rig.run(
            tuning, context, 2 * tokens, d, [&](gpu::Pass& pass) { gpu::v_append(pass, twin.cache, layer, x_buffer, kv_heads); },
            2, separate);
    }
    return twin.check();
}

// kv_decode of stored vectors returns decode()'s numbers, bit for bit except for the sign of zeros, which Vulkan does not
// promise.
Outcome decoded(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    constexpr uint32_t tokens = 61, position = 4;
    TwinCache twin(rig, d, format.as_values(KvType::f16), 70);
    std::vector<float> x = codec_vectors(tokens * kv_heads, d, twin.codec(KvSide::value).rotation.signs, rig.random.bits());
    for (float& v : x) // non-finite values are not decoded to numbers, and unencoded denormals may be flushed
        if (!(std::fabs(v) < 60000) || std::fabs(v) < 0x1p-14f) v = 0;
    twin.expect(KvSide::value, x, position);
    twin.append(tuning, KvSide::value, x, {}, position);
    const std::vector<float> want = twin.decoded(KvSide::value, position, tokens);
    const Buffer y = rig.output(want.size()), context = twin.context_of(position, tokens);
    rig.run(tuning, context, tokens, d,
            [&](gpu::Pass& pass) { gpu::kv_decode(pass, y, twin.cache, layer, KvSide::value, kv_heads); });
    const std::vector<uint32_t> got = rig.read(y);
    std::vector<uint32_t> right = got;
    for (size_t i = 0; i < want.size(); i++)
        right[i] = want[i] == 0 && (got[i] & 0x7fffffff) == 0 ? got[i] : std::bit_cast<uint32_t>(want[i]);
    return worse(compare_words(got, right), rig.check(y, {}, 0));
}

// Vectors whose components lie exactly on a threshold.
Outcome ties(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache twin(rig, d, format.as_values(KvType::f16), 64);
    std::vector<float> x(size_t(64) * kv_heads * d);
    for (size_t i = 0; i < x.size() / d; i++)
        threshold_tie(std::span(x).subspan(i * d, d), format.type, uint32_t(i) % ((1u << magnitude_bits(format.type)) - 1),
                      twin.codec(KvSide::value).rotation.signs, rig.random);
    twin.expect(KvSide::value, x, 0);
    twin.append(tuning, KvSide::value, x, {}, 0);
    return twin.check();
}

// Stores one-hot vectors (2 m + 1) L, whose every component then is as large as the standard deviation and has level L: the scale
// lies exactly halfway between two fp16 numbers, including subnormal ones and the smallest of them.
Outcome halfway_scales(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache twin(rig, d, format.as_values(KvType::f16), 64);
    const uint32_t level = format.type == KvType::tq2 ? 100 : format.type == KvType::tq3 ? 40 : 36;
    std::vector<float> x(size_t(64) * kv_heads * d);
    for (size_t i = 0; i < x.size() / d; i++) {
        const uint32_t some[] = {0, rig.random.below(64), rig.random.below(1024), 1024 + rig.random.below(1024)};
        const uint32_t numerator = (2 * some[i % 4] + 1) * level;
        const bool negative = rig.random.below(2) != 0;
        x[i * d + rig.random.below(d)] = std::ldexp(negative ? -float(numerator) : float(numerator), -25);
    }
    twin.expect(KvSide::value, x, 0);
    twin.append(tuning, KvSide::value, x, {}, 0);
    return twin.check();
}

// Columns of the dense matrix: all channels but one cancel, and only rounding decides what is left of them, and its sign.
Outcome cancelled(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache twin(rig, d, format.as_values(KvType::f16), 64);
    const std::vector<float>& matrix = *twin.codec(KvSide::value).rotation.matrix;
    std::vector<float> x(size_t(d / kv_heads) * kv_heads * d);
    for (size_t i = 0; i < x.size(); i++) x[i] = matrix[i % d * d + i / d];
    x.resize(std::min(x.size(), size_t(64) * kv_heads * d));
    twin.expect(KvSide::value, x, 0);
    twin.append(tuning, KvSide::value, x, {}, 0);
    return twin.check();
}

// Tokens of keys before their norm, and the norm's weights.
struct Keys {
    static constexpr uint32_t tokens = 43, position = 5, capacity = 51;
    std::vector<float> x, w;

    Keys(Random& random, uint32_t d) : x(random.normals(size_t(tokens) * kv_heads * d)), w(random.normals(d, 0.125f)) {
        for (size_t i = 0; i < x.size(); i++) x[i] *= std::ldexp(1.0f, int(i / d % 20) - 10);
        for (float& v : w) v += 1;
    }
};

// Norm and RoPE of keys may round differently than on the CPU: so the fp32 keys are compared, and for the other types the bytes
// that encode() gives for these fp32 keys. All types share the shader, and nothing in it may be contracted.
Outcome keys_with(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d, std::optional<float> norm_eps,
                  uint32_t rotary_dim = 0) {
    constexpr uint32_t tokens = Keys::tokens, position = Keys::position, capacity = Keys::capacity;
    const auto [x, w] = Keys(rig.random, d);
    TwinCache plain(rig, d, {KvType::f32, KvType::tq2}, capacity, rotary_dim);
    plain.append(tuning, KvSide::key, x, w, position, {}, norm_eps);
    const std::vector<float> stored = plain.stored_keys(position, tokens);
    if (format.type == KvType::f32) {
        plain.expect(KvSide::key, stored, position); // the tokens around them
        std::vector<host::Row> rows(tokens);
        for (uint32_t t = 0; t < tokens; t++) rows[t] = {0, position + t};
        host::HostCache reference({1, 1, capacity}, kv_heads, {{plain.codec(KvSide::key), plain.codec(KvSide::value)}}, capacity);
        reference.reserve(0, capacity);
        const host::LayerCache& of_layer = reference.layers()[0];
        ref::kv_append(rig.pool, of_layer, KvSide::key, x, w, {plain.rope, rows, rotary_dim}, norm_eps);
        std::vector<float> want;
        for (uint32_t i = 0; i < tokens * kv_heads; i++)
            for (const uint32_t word : of_layer.k.codes(of_layer.place(rows[i / kv_heads]), i % kv_heads))
                want.push_back(std::bit_cast<float>(word));
        return worse(plain.check(), compare(stored, want, 1e-6));
    }
    TwinCache twin(rig, d, format.as_keys(KvType::tq2), capacity, rotary_dim);
    twin.append(tuning, KvSide::key, x, w, position, {}, norm_eps);
    twin.expect(KvSide::key, stored, position);
    return twin.check();
}

Outcome keys(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    return keys_with(rig, tuning, format, d, eps);
}

// RoPE on a quarter of the channels.
Outcome keys_turned_in_part(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    return keys_with(rig, tuning, format, d, eps, d / 4);
}

Outcome keys_without_norm(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    return keys_with(rig, tuning, format, d, std::nullopt);
}

// The bytes of conditioned keys, of two pages, equal what condition_key() and encode() give for the unmodified keys.
Outcome conditioned_keys(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    const auto [x, w] = Keys(rig.random, d);
    const HeadConditions conditions = random_conditions(rig.random, kv_heads, d);
    constexpr uint32_t position = PAGE - 20, capacity = position + Keys::tokens + 3;
    TwinCache plain(rig, d, {KvType::f32, KvType::tq2}, capacity), twin(rig, d, format.as_keys(KvType::tq2), capacity);
    plain.append(tuning, KvSide::key, x, w, position);
    std::vector<float> stored = plain.stored_keys(position, Keys::tokens);
    const host::Rope rope{plain.rope, {}};
    for (uint32_t i = 0; i < Keys::tokens * kv_heads; i++)
        condition_key(std::span(stored).subspan(size_t(i) * d, d), conditions, i % kv_heads,
                      rope.page_turns({0, position + i / kv_heads}, d));
    twin.append(tuning, KvSide::key, x, w, position, conditions);
    twin.expect(KvSide::key, stored, position);
    return twin.check();
}

// The bytes of values whose channels are scaled equal what encode() gives for the quotients, which are exact.
Outcome scaled_values(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    constexpr uint32_t position = 3;
    TwinCache twin(rig, d, format.as_values(KvType::tq3), 375);
    std::vector<float> x = codec_vectors(370 * kv_heads, d, twin.codec(KvSide::value).rotation.signs, rig.random.bits());
    HeadConditions by{random_value_scales(rig.random, kv_heads, d), {}};
    for (float& scale : std::span(by.factors).last(d)) scale = std::ldexp(1.0f, int(rig.random.below(41)) - 20);
    twin.append(tuning, KvSide::value, x, {}, position, by);
    for (size_t i = 0; i < x.size(); i++) x[i] /= by.factors[i % by.factors.size()];
    twin.expect(KvSide::value, x, position);
    return twin.check();
}

// Keys and values in passes of one and several tokens, fewer and more than the window keeps. Keys as in keys().
Outcome full_precision_window(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache plain(rig, d, {KvType::f32, KvType::tq2}, 86), twin(rig, d, format.as_values(format.type), 86);
    TwinWindow window(twin);
    const std::vector<float> w = Keys(rig.random, d).w;
    const Buffer w_buffer = rig.upload(w);
    const std::vector<float> scales = random_value_scales(rig.random, kv_heads, d);
    const Buffer v_scales = rig.upload(gpu::value_scale_floats(twin.codec(KvSide::value), scales));
    uint32_t position = 1;
    for (const uint32_t tokens : {1u, 3u, 45u, 1u, 1u, 22u, 7u}) {
        const std::vector<float> k = rig.random.normals(size_t(tokens) * kv_heads * d);
        std::vector<float> v = rig.random.normals(k.size());
        plain.append(tuning, KvSide::key, k, w, position);
        const Buffer k_buffer = rig.upload(k), v_buffer = rig.upload(v), context = twin.context_of(position, tokens);
        rig.run(tuning, context, tokens, d, [&](gpu::Pass& pass) {
            gpu::k_append(pass, twin.cache, layer, k_buffer, {w_buffer}, kv_heads, eps);
            gpu::v_append(pass, twin.cache, layer, v_buffer, kv_heads, &v_scales);
            gpu::keep_window(pass, twin.cache, layer, k_buffer, {w_buffer}, v_buffer, kv_heads, eps, &v_scales);
        });
        for (size_t i = 0; i < v.size(); i++) v[i] /= scales[i % scales.size()];
        window.expect(KvSide::key, plain.stored_keys(position, tokens), position);
        window.expect(KvSide::value, v, position);
        position += tokens;
    }
    return window.check();
}

Outcome nonfinite(Rig& rig, const gpu::Tuning& tuning, const Format& format, uint32_t d) {
    TwinCache twin(rig, d, format.as_values(KvType::f32), 9);
    std::vector<float> x(9 * kv_heads * d, 0.5f);
    twin.append(tuning, KvSide::key, x, std::vector<float>(d, 1.0f), 0);
    x[(5 * kv_heads + 2) * d + d - 1] = -std::numeric_limits<float>::infinity();
    twin.append(tuning, KvSide::value, x, {}, 0);
    const auto before = twin.cache.find_nonfinite(rig.device, twin.tables[0], 5),
               found = twin.cache.find_nonfinite(rig.device, twin.tables[0], 6);
    if (!before && found == "the value of layer 1, kv head 2, position 5") return {};
    return {false, 1, 0, fmt::format("an infinity at layer 1, kv head 2, position 5 was found in {}", found.value_or("nothing"))};
}

// Every type; TurboQuant's with both rotations and every rule.
std::vector<Format> all_formats() {
    std::vector<Format> out;
    for (const auto& [type, type_name] : kv_types) {
        out.push_back({type});
        if (is_turboquant(type) && !is_unequal(type)) out.push_back({type, RotationKind::haar});
        if (is_turboquant(type))
            for (const ScaleRule rule : {ScaleRule::norm, ScaleRule::least_squares, ScaleRule::unbiased})
                if (rule != KvOptions().scale_rule) out.push_back({type, RotationKind::wht, rule});
    }
    return out;
}

void add_format(Rows& rows, const NamedTuning& variant, const Format& format, uint32_t d) {
    using Body = Outcome (*)(Rig&, const gpu::Tuning&, const Format&, uint32_t);
    const bool usual = format.rule == KvOptions().scale_rule; // rules differ only in the scale
    // tq3t covers the effects of scales, rotations and lengths on a trellis
    const bool shown = format.type == KvType::tq4t && (!usual || format.rotation != RotationKind::wht || d == 256);
    // The steps before the encoder do not depend on the type; only sizes and, with fp32, unencoded values do.
    const bool some = format.type == KvType::tq4 || format.type == KvType::f32;
    const auto add = [&](const char* kernel, const char* what, Body body, bool full = false) {
        rows.push_back({.kernel = kernel,
                        .variant = fmt::format("{}, {}", format.text(), variant.name),
                        .shape = fmt::format("{}, head_dim {}", what, d),
                        .run = [=, tuning = variant.tuning](Rig& rig) { return body(rig, tuning, format, d); },
                        .full_only = full || shown});
    };
    add("kv_append", "values of every kind", values);
    if (usual && (format.type == KvType::tq4 || format.type == KvType::f16)) add("kv_append", "two slots", slots);
    if (usual) add("kv_append", "keys", keys, d != 128 && !some);
    if (usual && some) add("kv_append", "keys without a norm", keys_without_norm);
    if (usual && some) add("kv_append", "keys with RoPE on a quarter", keys_turned_in_part);
    if (usual) add("kv_append", "conditioned keys", conditioned_keys, !some);
    if (usual && is_coded(format.type)) add("kv_append", "scaled values", scaled_values, !some);
    const bool keeps_window = format.type == KvType::tq3 || format.type == KvType::tq3t || format.type == KvType::q8_0;
    if (usual && keeps_window) add("kv_append", "window", full_precision_window);
    if (usual) add("kv_decode", "values of every kind", decoded);
    const bool has_thresholds = is_turboquant(format.type) && !is_trellis(format.type) && !is_unequal(format.type) &&
                                !codebook(magnitude_bits(format.type)).thresholds.empty();
    if (has_thresholds && usual && format.rotation == RotationKind::wht) add("kv_append", "values on thresholds", ties);
    const bool few_levels = format.type == KvType::tq2 || format.type == KvType::tq3 || format.type == KvType::tq4;
    if (few_levels && format.rotation == RotationKind::wht && d == 128) add("kv_append", "halfway scales", halfway_scales);
    if (format.type == KvType::tq4 && format.rotation == RotationKind::haar) add("kv_append", "values that cancel", cancelled);
    if (usual && d == 128) add("kv_append", "an infinity", nonfinite);
}

} // namespace

void add_cache(Rows& rows, const Capabilities& device) {
    const std::vector<NamedTuning> all = variants(device);
    for (const Format& format : all_formats())
        for (const uint32_t d : {128u, 64u, 256u}) {
            if (d != 128 && format.rule != KvOptions().scale_rule) continue;
            add_format(rows, all[0], format, d);
        }
    for (size_t i = 1; i < all.size(); i++)
        for (const Format& format : {Format{KvType::tq4},
                                     {KvType::tq4u},
                                     {KvType::tq3, RotationKind::haar},
                                     {KvType::tq2t},
                                     {KvType::tq3t},
                                     {KvType::tq6},
                                     {KvType::q4_0},
                                     {KvType::f16}})
            add_format(rows, all[i], format, 128);
}

} // namespace tq::conformance
