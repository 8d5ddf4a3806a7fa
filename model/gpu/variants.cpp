#include "model/gpu/variants.h"
#include "base/ensure.h"
#include "model/gpu/constants.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device_profile.h"
#include <string_view>

namespace tq::gpu {
namespace {

constexpr uint32_t head_dims[] = {64, 128, 256};
constexpr uint32_t groups[] = {1, 2, 4, 5, 8}; // query heads per kv head: all of Qwen3's, and none shared
constexpr uint32_t token_counts[] = {1, 512};  // decode, prefill
constexpr bool no_and_yes[] = {false, true};

constexpr uint32_t rotations[] = {ROTATION_WHT, ROTATION_HAAR};

// Pairs (k, v) whose attention is compiled in every shape.
constexpr KvTypes common_pairs[] = {{KvType::f32, KvType::f32},    {KvType::f16, KvType::f16},  {KvType::tq4, KvType::tq4},
                                    {KvType::tq4, KvType::tq3},    {KvType::q8_0, KvType::tq4}, {KvType::tq3q, KvType::tq3q},
                                    {KvType::tq3q, KvType::a4_128}};

class List {
  public:
    explicit List(const AnyShader& shader) : shader_(shader) {}

    template <size_t N> void add(const Constants<N>& constants) {
        ENSURE(N == shader_.interface.constants, "{}: {} constants", shader_.name, N);
        const Variant variant{&shader_, {constants.begin(), constants.end()}};
        if (std::ranges::find(variants, variant) == variants.end()) variants.push_back(variant);
    }
    std::vector<Variant> variants;

  private:
    const AnyShader& shader_;
};

bool is_simd(std::string_view kernel) { return kernel.ends_with("_simd"); }
bool is_of_trellis(std::string_view kernel) { return kernel.ends_with("_trellis"); }
bool is_subgroup(std::string_view kernel) { return kernel.find("_subgroup") != kernel.npos; }

bool is_tiled(std::string_view kernel) { return kernel.starts_with("matmul_tiled_"); }
bool is_coopmat(std::string_view kernel) { return kernel.find("_coopmat") != kernel.npos; }

void add_attention(List& list, std::string_view name, const Tuning& t) {
    const auto add = [&](uint32_t head_dim, KvTypes types, uint32_t group, uint32_t tokens, uint32_t recent = RECENT_NONE) {
#if TQ_COOPERATIVE_MATRIX
        if (is_coopmat(name)) {
            const auto tile = coopmat_attention(t, head_dim, types, group, tokens);
            if (tile) list.add(attention_coopmat_constants(t, *tile, head_dim, types, group, recent));
            return;
        }
#endif
        if (name != "attention_per_lane") return list.add(attention_constants(t, head_dim, types, group, tokens, recent));
        if (is_per_lane(t, types)) list.add(attention_per_lane_constants(t, head_dim, types, group, tokens, recent));
    };
    for (const uint32_t tokens : token_counts) {
        for (const KvTypeName& type : kv_types) add(128, {type.type, type.type}, 2, tokens);
        add(128, {KvType::tq4, KvType::tq4}, 2, tokens, RECENT_LEFT_OUT);
        add(128, {KvType::f16, KvType::f16}, 2, tokens, RECENT_ALONE);
        for (const uint32_t head_dim : head_dims)
            for (const uint32_t group : groups)
                for (const KvTypes pair : common_pairs) add(head_dim, pair, group, tokens);
    }
}

void add_append(List& list, bool of_subgroup, const Tuning& t, uint32_t head_dim, KvType type) {
    const auto add = [&](bool is_key, uint32_t rotation, ScaleRule rule, bool conditioned = false,
                         uint32_t recent = RECENT_NONE) {
        const uint32_t subgroup = append_subgroup(t, head_dim, type, rotation);
        if (of_subgroup == (subgroup != 0))
            list.add(kv_append_constants(t, subgroup, head_dim, type, is_key, rotation, rule, conditioned, recent));
    };
    if (type == KvType::f16)
        for (const bool is_key : no_and_yes)
            for (const uint32_t recent : {RECENT_BLOCK, RECENT_RING})
                add(is_key, ROTATION_WHT, ScaleRule::unbiased, is_key, recent);
    const bool plain = !is_rotated(type);
    for (const bool is_key : no_and_yes) add(is_key, plain ? ROTATION_NONE : ROTATION_WHT, ScaleRule::unbiased);
    add(true, plain ? ROTATION_NONE : ROTATION_WHT, ScaleRule::unbiased, true);
    if (!plain) add(false, ROTATION_HAAR, ScaleRule::unbiased);
    if (!is_turboquant(type) || head_dim != 128) return;
    for (const ScaleRule rule : {ScaleRule::norm, ScaleRule::least_squares}) add(true, ROTATION_WHT, rule);
}

void add_decode(List& list, const Tuning& t, uint32_t head_dim, KvType type) {
    if (!is_rotated(type)) return list.add(kv_decode_constants(t, head_dim, type, ROTATION_NONE));
    for (const uint32_t rotation : rotations) list.add(kv_decode_constants(t, head_dim, type, rotation));
}

void add_head_kernel(List& list, std::string_view name, const Tuning& t, uint32_t head_dim) {
    for (const uint32_t rotation : {ROTATION_WHT, ROTATION_HAAR, ROTATION_NONE})
        for (const bool projected : no_and_yes) {
            const uint32_t subgroup = head_subgroup(t, head_dim, rotation);
            if ((rotation == ROTATION_NONE && projected) || is_subgroup(name) != (subgroup != 0)) continue;
            for (const bool conditioned : no_and_yes)
                if (name.starts_with("q_norm_rope"))
                    list.add(q_norm_rope_constants(t, subgroup, head_dim, rotation, projected, conditioned));
            if (name.starts_with("attention_merge"))
                for (const bool recent : no_and_yes)
                    if (!(recent && projected))
                        list.add(attention_merge_constants(t, subgroup, head_dim, rotation, projected, recent));
        }
    for (const KvTypeName& type : kv_types) {
        if (name.starts_with("kv_append") && is_of_trellis(name) == is_trellis(type.type))
            add_append(list, is_subgroup(name), t, head_dim, type.type);
        if (name == "kv_decode") add_decode(list, t, head_dim, type.type);
    }
}

// Whether devices tuned like this run the kernel.
bool is_used(std::string_view kernel, const Tuning& t) {
    if (kernel == "attention_per_lane") return t.attention_per_lane;
    if (is_simd(kernel)) return t.simd;
    if (is_tiled(kernel)) return t.matmul_tiled;
    if (kernel == "attention_coopmat") return t.attention_coopmat_rows + t.attention_coopmat_keys != 0;
    if (is_coopmat(kernel)) return t.matmul_coopmat;
    if (kernel == "attention") return t.subgroup == 0;
    if (kernel.starts_with("matvec_")) return is_subgroup(kernel) == matvec_uses_subgroup(t);
    return !is_subgroup(kernel) || t.subgroup != 0;
}

void add_matvec(List& list, const Tuning& t) {
    for (const uint32_t output : {MATVEC_STORE, MATVEC_ADD, MATVEC_GATED})
        list.add(matvec_constants(t, t.weight_interleave, output, false));
    if (!t.fold_norms) return;
    for (const uint32_t output : {MATVEC_STORE, MATVEC_GATED}) list.add(matvec_constants(t, t.weight_interleave, output, true));
    list.add(matvec_constants(t, t.weight_interleave, MATVEC_RESIDUAL, false));
}

void add_products(List& list, std::string_view name, const Tuning& t, bool accumulate) {
#if TQ_COOPERATIVE_MATRIX
    if (is_coopmat(name)) return list.add(matmul_coopmat_constants(t, t.weight_interleave, accumulate));
#endif
    if (is_tiled(name)) return list.add(matmul_tiled_constants(t, t.weight_interleave, accumulate));
    list.add(matmul_constants(t, t.weight_interleave, accumulate));
}

void add(List& list, std::string_view name, const Tuning& t) {
    if (!is_used(name, t)) return;
    if (name.starts_with("embed_")) list.add(embed_constants(t, t.weight_interleave));
    if (name == "rms_norm") list.add(rms_norm_constants(t));
    if (name == "swiglu") list.add(swiglu_constants(t));
    if (name == "sample_candidates") list.add(sample_candidates_constants(t));
    if (name == "sample") list.add(sample_constants(t));
    if (name.starts_with("attention") && !name.starts_with("attention_merge")) add_attention(list, name, t);
    if (name.starts_with("matmul_"))
        for (const bool accumulate : no_and_yes) add_products(list, name, t, accumulate);
    if (name.starts_with("matvec_")) add_matvec(list, t);
    for (const uint32_t head_dim : head_dims) add_head_kernel(list, name, t, head_dim);
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
    std::vector<Variant> out;
    for (const AnyShader* shader : shader::all) {
        List list(*shader);
        for (const Tuning& tuning : tunings) add(list, shader->name, tuning);
        const bool used = std::ranges::any_of(tunings, [&](const Tuning& tuning) { return is_used(shader->name, tuning); });
        ENSURE(!list.variants.empty() || !used, "{} has no variants: add them here", shader->name);
        out.insert(out.end(), list.variants.begin(), list.variants.end());
    }
    return out;
}

} // namespace tq::gpu
