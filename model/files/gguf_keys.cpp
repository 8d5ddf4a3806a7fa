// The keys of a file that `tq-run quantize` writes. Keys of a GGUF source are copied byte for byte, also if this program does not
// know them. Keys of a Hugging Face directory were translated when it was read (huggingface_config.cpp), and are written here
// with the types that llama.cpp reads: a real number that JSON had as an integer becomes f32, recurrent layers become a list of
// booleans.
#include "model/files/gguf_keys.h"
#include <algorithm>
#include <array>
#include <fmt/ranges.h>

namespace tq {
namespace {

constexpr std::string_view architecture_key = "general.architecture";

bool is_replaced(std::string_view key) {
    return key == architecture_key || key == "general.file_type" || key == "general.quantization_version" ||
           key == "general.alignment" || key.starts_with("split.");
}

// Numbers that JSON may have as integers and GGUF has as f32.
bool is_real(std::string_view key) {
    constexpr std::array ends{".rope.freq_base", "_epsilon",      ".scaling.factor", ".attn_factor", ".yarn_beta_fast",
                              ".yarn_beta_slow", "sampling.temp", ".top_p",          ".min_p",       ".penalty_repeat"};
    return std::ranges::any_of(ends, [&](std::string_view end) { return key.ends_with(end); });
}

// Keys that GGUF expresses by other means: a tied head by leaving it out, Llama 3's scaling by a tensor, greedy decoding by the
// temperature.
bool is_left_out(const ModelFile& file, const Architecture& a, std::string_view key) {
    const bool is_llama3 = file.text(a.key("rope.scaling.type"), "") == "llama3";
    return key == "tie_word_embeddings" || key == "general.sampling.do_sample" || key.ends_with(".ssm.v_head_reordered") ||
           (is_llama3 && key.starts_with(a.key("rope.scaling.")));
}

void put_huggingface(GgufWriter& writer, const Model& model) {
    const Config& c = model.config;
    const Architecture& a = *c.architecture;
    const std::string recurrent = a.key("attention.recurrent_layers");
    const auto size = [&](const char* key, uint64_t value) {
        if (!model.file.find(a.key(key))) writer.set(a.key(key), value);
    };
    const uint32_t heads = model.weights.mtp ? c.nextn_predict_layers : 0; // that the file has, for multi-token prediction
    for (const auto& [key, value] : model.file.metadata()) {
        if (is_replaced(key) || is_left_out(model.file, a, key) || key == recurrent) continue;
        if (key == a.key("nextn_predict_layers") && heads == 0) continue;
        const bool layers = key == a.key("block_count");
        writer.set(key, layers         ? uint64_t(c.num_hidden_layers + heads)
                        : is_real(key) ? ModelFile::Value(model.file.real(key))
                                       : value);
    }
    size("attention.head_count_kv", c.num_key_value_heads);
    size("attention.key_length", c.head_dim);
    size("attention.value_length", c.head_dim);
    size("rope.dimension_count", c.rotary());
    if (!model.file.find(a.key("rope.freq_base"))) writer.set(a.key("rope.freq_base"), double(c.rope_theta));
    if (a.tiled_heads) // of positions in pictures, which texts have alike
        writer.set(a.key("rope.dimension_sections"), std::vector<int64_t>{11, 11, 10, 0});
    if (c.recurrent_layers.empty()) return;
    constexpr uint32_t list = 9, truth = 7;
    std::string layers = raw(truth) + raw(uint64_t(c.num_hidden_layers + heads));
    for (uint32_t layer = 0; layer < c.num_hidden_layers + heads; layer++) layers += raw(uint8_t(c.is_recurrent(layer)));
    writer.set_raw(recurrent, list, layers);
}

} // namespace

void put_gguf_keys(GgufWriter& writer, const Model& model, uint32_t file_type) {
    constexpr uint64_t quantization_version = 2; // of ggml's blocks
    writer.set(architecture_key, model.config.architecture->name);
    if (model.file.rope_is_split())
        put_huggingface(writer, model);
    else
        for (const auto& [key, value] : model.file.stored_metadata())
            if (!is_replaced(key)) writer.set_raw(key, value.type, value.bytes);
    writer.set("general.quantization_version", quantization_version);
    writer.set("general.file_type", uint64_t(file_type));
}

std::vector<std::string> notes_on_gguf_keys(const Model& model) {
    if (!model.file.rope_is_split()) return {};
    const Config& c = model.config;
    const RopeScaling& scaling = c.rope_scaling;
    constexpr RopeScaling usual;
    std::vector<std::string> settings;
    if (scaling.type == RopeScalingType::yarn && (scaling.beta_fast != usual.beta_fast || scaling.beta_slow != usual.beta_slow))
        settings.push_back(fmt::format("YaRN's beta_fast {} and beta_slow {}", scaling.beta_fast, scaling.beta_slow));
    if (c.num_experts != 0 && !c.norm_topk_prob) settings.push_back("norm_topk_prob false");
    if (settings.empty()) return {};
    return {fmt::format("llama.cpp does not follow {}: it will compute otherwise with the new file, and worse",
                        fmt::join(settings, ", nor "))};
}

} // namespace tq
