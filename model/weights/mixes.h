// The mixes of weight formats that llama-quantize writes, by its names: which tensors of a file get more bits than the others.
#pragma once
#include "model/files/formats/model_file.h"
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tq {

// Whether a mix of medium size (Q4_K_M) has more bits in a layer: the first and the last eighth, and every third between.
bool has_more_bits(uint32_t layer, uint32_t layers);

// The formats of one kind of matrix: `type` in some layers (none, all, the first 2 or 4, the first sixteenth or eighth, or those
// of has_more_bits()), and `others` elsewhere. Nothing: that of most matrices.
struct MixPart {
    enum Layers { none, all, first_2, first_4, sixteenth, eighth, more_bits } layers = none;
    GgmlType type = GgmlType::F32;
    std::optional<GgmlType> others = {};
};

struct Mix {
    std::string_view name; // "Q4_K_M"
    GgmlType type;         // of most matrices
    uint32_t file_type;    // general.file_type
    MixPart values = {}, ffn_down = {}, attn_output = {};
};

// Returns the mix of that name in any case, also under llama-quantize's second name ("Q4_K" is Q4_K_M, "Q3_K" Q3_K_M); nullptr:
// there is none.
const Mix* find_mix(std::string_view name);
std::string mix_names(); // "F32 F16 BF16 Q8_0 ..."

// Options beside the mix.
struct MixOptions {
    bool pure = false;                                   // all matrices in the mix's own format
    std::optional<GgmlType> output_type, embedding_type; // of output.weight, and of token_embd.weight
};

// The formats of a model's tensors.
class MixedTypes {
  public:
    // names: of all tensors of the new file. They and `mix` must outlive the object.
    MixedTypes(const ModelFile& file, std::span<const std::string_view> names, const Mix& mix, const MixOptions& options);

    // Returns the format of a tensor by its name in GGUF and its elements per dimension, fastest first (unused ones are 1).
    // Nullopt: it keeps its own: a vector, a norm, a router, and the matrices that a recurrence's state depends on.
    std::optional<GgmlType> of(std::string_view name, const std::array<uint64_t, 4>& ne) const;

    // The same for rows that are a multiple of any block, of a matrix that does not keep its format.
    GgmlType requested(std::string_view name) const;

  private:
    GgmlType of_values(std::string_view name) const;
    GgmlType of_part(const MixPart& part, uint32_t layer, uint32_t layers) const;

    const Mix& mix_;
    const MixOptions options_;
    uint32_t layers_ = 0;
    bool tied_, is_70b_ = false, has_8_experts_ = false, has_large_groups_ = false;
    std::vector<std::string_view> value_names_; // of attn_v and attn_qkv, in the order of layers
};

// Returns whether a matrix is left in F32, F16 or BF16: a router, which decides by small differences, and the gates of a
// recurrent layer, whose errors its state adds up.
bool needs_all_bits(std::string_view name);

} // namespace tq
