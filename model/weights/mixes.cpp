// Formats of a file's matrices, for "Q4_K_M" and the like. The rules are llama.cpp's (llama_tensor_get_type), so that
// names mean the same: values, the outputs of attention and those of feed-forwards get more bits, in all or in some layers
// (MixPart), the head is Q6_K, rows that are no multiple of 256 get a format with blocks of 32.
// The special cases of llama.cpp are here with what they depend on: mixtures of 8 experts, models of 80 layers (llama.cpp's
// "70B"), groups of four and more query heads on a kv head, and a counter of value matrices in the order of layers.
// Some tensors keep all bits in every mix: norms, routers, convolutions and gates of recurrences. They are small, and errors in
// them count much.
#include "model/weights/mixes.h"
#include "base/printable.h"
#include "model/files/formats/architecture.h"
#include <algorithm>
#include <array>
#include <charconv>

namespace tq {
namespace {

std::span<const Mix> mixes() {
    using enum GgmlType;
    constexpr MixPart more_are_q6{MixPart::more_bits, Q6_K}, all_q3{MixPart::all, Q3_K}, all_q5{MixPart::all, Q5_K};
    static constexpr Mix all[] = {
        {"F32", F32, 0},
        {"F16", F16, 1},
        {"BF16", BF16, 32},
        {"Q8_0", Q8_0, 7},
        {"Q4_0", Q4_0, 2},
        {"Q4_1", Q4_1, 3},
        {"Q5_0", Q5_0, 8},
        {"Q5_1", Q5_1, 9},
        {"Q2_K", Q2_K, 10, all_q3, all_q3, all_q3},
        {"Q3_K_S", Q3_K, 11},
        {"Q3_K_M", Q3_K, 12, {MixPart::first_2, Q5_K, Q4_K}, {MixPart::sixteenth, Q5_K, Q4_K}, {MixPart::all, Q4_K}},
        {"Q3_K_L", Q3_K, 13, all_q5, all_q5, all_q5},
        {"Q4_K_S", Q4_K, 14, {MixPart::first_4, Q5_K}, {MixPart::eighth, Q5_K}},
        {"Q4_K_M", Q4_K, 15, more_are_q6, more_are_q6},
        {"Q5_K_S", Q5_K, 16},
        {"Q5_K_M", Q5_K, 17, more_are_q6, more_are_q6},
        {"Q6_K", Q6_K, 18},
    };
    return all;
}

// The format that has blocks of 32 and is the next larger one, for rows that are no multiple of 256.
GgmlType in_blocks_of_32(GgmlType type) {
    using enum GgmlType;
    switch (type) {
    case Q2_K:
    case Q3_K: return Q4_0;
    case Q4_K: return Q5_0;
    case Q5_K: return Q5_1;
    case Q6_K: return Q8_0;
    default: return type;
    }
}

// The layer of "blk.3.attn_v.weight"; 0 of other names.
uint32_t layer_of(std::string_view name) {
    constexpr std::string_view begin = "blk.";
    uint32_t layer = 0;
    if (name.starts_with(begin)) std::from_chars(name.data() + begin.size(), name.data() + name.size(), layer);
    return layer;
}

// Whether a matrix makes the values of a layer's attention, or of its recurrence.
bool makes_values(std::string_view name) { return name.ends_with("attn_v.weight") || name.ends_with("attn_qkv.weight"); }

bool is_in(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

bool is_in_part(MixPart::Layers which, uint32_t layer, uint32_t layers) {
    switch (which) {
    case MixPart::none: return false;
    case MixPart::all: return true;
    case MixPart::first_2: return layer < 2;
    case MixPart::first_4: return layer < 4;
    case MixPart::sixteenth: return layer < layers / 16;
    case MixPart::eighth: return layer < layers / 8;
    case MixPart::more_bits: return has_more_bits(layer, layers);
    }
    return false;
}

// The number of query heads on a kv head is at least 4; as in llama.cpp in the first layer, if layers differ.
bool has_large_groups(const ModelFile& file, const Architecture& a) {
    const std::string heads = a.key("attention.head_count"), kv_heads = a.key("attention.head_count_kv");
    if (!file.find(heads) || !file.find(kv_heads)) return false;
    const uint64_t all = file.integers(heads).at(0), kv = file.integers(kv_heads).at(0);
    return kv != 0 && all / kv >= 4;
}

} // namespace

bool has_more_bits(uint32_t layer, uint32_t layers) {
    const uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

const Mix* find_mix(std::string_view name) {
    std::string requested = lowercase(name);
    if (requested == "q3_k" || requested == "q4_k" || requested == "q5_k") requested += "_m";
    const std::span all = mixes();
    const auto found = std::ranges::find_if(all, [&](const Mix& m) { return lowercase(m.name) == requested; });
    return found == all.end() ? nullptr : &*found;
}

std::string mix_names() {
    std::string names;
    for (const Mix& mix : mixes()) names += (names.empty() ? "" : " ") + std::string(mix.name);
    return names;
}

bool needs_all_bits(std::string_view name) {
    return name.ends_with("ffn_gate_inp.weight") || name.ends_with("ssm_beta.weight") || name.ends_with("ssm_alpha.weight");
}

MixedTypes::MixedTypes(const ModelFile& file, std::span<const std::string_view> names, const Mix& mix, const MixOptions& options)
    : mix_(mix), options_(options), tied_(std::ranges::find(names, "output.weight") == names.end()) {
    std::ranges::copy_if(names, std::back_inserter(value_names_), makes_values);
    std::ranges::stable_sort(value_names_, {}, layer_of);
    const Architecture& a = architecture_of(file);
    layers_ = uint32_t(std::min<uint64_t>(file.integer(a.key("block_count")), UINT32_MAX));
    has_8_experts_ = a.experts && file.integer(a.key("expert_count"), 0) == 8;
    has_large_groups_ = has_large_groups(file, a);
    is_70b_ = layers_ == 80 && (a.name == "llama" || a.name == "qwen2");
}

GgmlType MixedTypes::requested(std::string_view name) const {
    using enum GgmlType;
    const bool is_head = name == "output.weight" || (tied_ && name == "token_embd.weight");
    if (is_head && options_.output_type) return *options_.output_type;
    if (name == "token_embd.weight" && options_.embedding_type) return *options_.embedding_type;
    if (options_.pure || block_format(mix_.type)->elements == 1) return mix_.type;
    if (is_head) return mix_.type == Q8_0 ? Q8_0 : Q6_K;
    if (makes_values(name)) return of_values(name);
    if (has_8_experts_ && name.ends_with("attn_k.weight")) return Q8_0;
    if (name.ends_with("attn_output.weight")) {
        const bool is_low = mix_.type == Q2_K || mix_.type == Q3_K || mix_.type == Q4_K;
        if (!has_8_experts_) return of_part(mix_.attn_output, layer_of(name), layers_);
        return is_low && mix_.attn_output.type != Q5_K ? Q5_K : mix_.type; // Q3_K_L has Q3_K then
    }
    return is_in(name, "ffn_down") ? of_part(mix_.ffn_down, layer_of(name), layers_) : mix_.type;
}

GgmlType MixedTypes::of_values(std::string_view name) const {
    using enum GgmlType;
    if (has_8_experts_) return Q8_0;
    const auto i = uint32_t(std::ranges::find(value_names_, name) - value_names_.begin());
    const GgmlType type = mix_.type == Q2_K && has_large_groups_ ? Q4_K : of_part(mix_.values, i, uint32_t(value_names_.size()));
    return is_70b_ && (type == Q3_K || type == Q4_K) ? Q5_K : type;
}

GgmlType MixedTypes::of_part(const MixPart& part, uint32_t layer, uint32_t layers) const {
    return is_in_part(part.layers, layer, layers) ? part.type : part.others.value_or(mix_.type);
}

std::optional<GgmlType> MixedTypes::of(std::string_view name, const std::array<uint64_t, 4>& ne) const {
    const bool is_matrix = ne[1] > 1 && name.ends_with("weight") && !is_in(name, "_norm.weight");
    if (!is_matrix || needs_all_bits(name) || is_in(name, "ssm_conv1d") || is_in(name, "ssm_ba") || name.starts_with("v.") ||
        name.starts_with("mm."))
        return std::nullopt;
    GgmlType type = requested(name);
    if (ne[0] % block_format(type)->elements != 0) type = in_blocks_of_32(type);
    return ne[0] % block_format(type)->elements == 0 ? type : GgmlType::F16;
}

} // namespace tq
