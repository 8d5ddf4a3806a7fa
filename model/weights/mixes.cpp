// Which format each matrix of a file has, for "Q4_K_M" and the like. The rules are llama.cpp's (llama_tensor_get_type), so that
// names mean the same: values and the outputs of feed-forwards get more bits in some layers (has_more_bits()), the head is Q6_K,
// rows that are no multiple of 256 get a format with blocks of 32.
// The special cases of llama.cpp are here with what they depend on: mixtures of 8 experts, models of 80 layers (llama.cpp's
// "70B"), and a counter of value matrices in the order of layers.
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

constexpr Mix mixes[] = {
    {"F32", GgmlType::F32, 0},
    {"F16", GgmlType::F16, 1},
    {"BF16", GgmlType::BF16, 32},
    {"Q8_0", GgmlType::Q8_0, 7},
    {"Q4_0", GgmlType::Q4_0, 2},
    {"Q4_1", GgmlType::Q4_1, 3},
    {"Q5_0", GgmlType::Q5_0, 8},
    {"Q5_1", GgmlType::Q5_1, 9},
    {"Q4_K_S", GgmlType::Q4_K, 14, Mix::small},
    {"Q4_K_M", GgmlType::Q4_K, 15, Mix::medium},
    {"Q5_K_S", GgmlType::Q5_K, 16, Mix::small},
    {"Q5_K_M", GgmlType::Q5_K, 17, Mix::medium},
    {"Q6_K", GgmlType::Q6_K, 18},
};

bool is_k(GgmlType type) { return type == GgmlType::Q4_K || type == GgmlType::Q5_K || type == GgmlType::Q6_K; }

// The format of most bits at most that has blocks of 32, for rows that are no multiple of 256.
GgmlType in_blocks_of_32(GgmlType type) {
    return type == GgmlType::Q4_K ? GgmlType::Q5_0 : type == GgmlType::Q5_K ? GgmlType::Q5_1 : GgmlType::Q8_0;
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

} // namespace

bool has_more_bits(uint32_t layer, uint32_t layers) {
    const uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

const Mix* find_mix(std::string_view name) {
    std::string wanted = lowercase(name);
    if (wanted == "q4_k" || wanted == "q5_k") wanted += "_m";
    const auto found = std::ranges::find_if(mixes, [&](const Mix& m) { return lowercase(m.name) == wanted; });
    return found == std::end(mixes) ? nullptr : found;
}

std::string mix_names() {
    std::string names;
    for (const Mix& mix : mixes) names += (names.empty() ? "" : " ") + std::string(mix.name);
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
    is_70b_ = layers_ == 80 && (a.name == "llama" || a.name == "qwen2");
}

GgmlType MixedTypes::wanted(std::string_view name) const {
    const bool is_head = name == "output.weight" || (tied_ && name == "token_embd.weight");
    if (is_head && options_.output_type) return *options_.output_type;
    if (name == "token_embd.weight" && options_.embedding_type) return *options_.embedding_type;
    if (options_.pure || !block_format(mix_.type) || block_format(mix_.type)->elements == 1) return mix_.type;
    if (is_head) return mix_.type == GgmlType::Q8_0 ? GgmlType::Q8_0 : GgmlType::Q6_K;
    const bool is_q4_k = mix_.type == GgmlType::Q4_K, small_q4_k = is_q4_k && mix_.size == Mix::small;
    if (has_8_experts_ && (makes_values(name) || name.ends_with("attn_k.weight"))) return GgmlType::Q8_0;
    if (has_8_experts_ && is_q4_k && name.ends_with("attn_output.weight")) return GgmlType::Q5_K;
    if (makes_values(name)) {
        const auto i = uint32_t(std::ranges::find(value_names_, name) - value_names_.begin());
        if (mix_.size == Mix::medium && has_more_bits(i, uint32_t(value_names_.size()))) return GgmlType::Q6_K;
        if ((small_q4_k && i < 4) || (is_70b_ && is_q4_k)) return GgmlType::Q5_K;
    } else if (is_in(name, "ffn_down")) {
        if (mix_.size == Mix::medium && has_more_bits(layer_of(name), layers_)) return GgmlType::Q6_K;
        if (small_q4_k && layer_of(name) < layers_ / 8) return GgmlType::Q5_K;
    }
    return mix_.type;
}

std::optional<GgmlType> MixedTypes::of(std::string_view name, const std::array<uint64_t, 4>& ne) const {
    const bool is_matrix = ne[1] > 1 && name.ends_with("weight") && !is_in(name, "_norm.weight");
    if (!is_matrix || needs_all_bits(name) || is_in(name, "ssm_conv1d") || is_in(name, "ssm_ba") || name.starts_with("v.") ||
        name.starts_with("mm."))
        return std::nullopt;
    GgmlType type = wanted(name);
    if (is_k(type) && ne[0] % 256 != 0) type = in_blocks_of_32(type);
    return ne[0] % block_format(type)->elements == 0 ? type : GgmlType::F16;
}

} // namespace tq
