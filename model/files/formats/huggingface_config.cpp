// Converts config.json and generation_config.json to GGUF's keys, so that model/config.cpp has one set of keys to check.
// take() copies a value under GGUF's name and keeps the file's own name for errors. expect() is for settings that change the
// arithmetic and that tq-run has in one form only: absent or that value, else the file is refused. In RoPE's scaling every
// unknown key is refused; other unknown keys are passed over. Hybrids may have their settings in text_config. Values that mean
// something else in GGUF are converted here: attention_factor, partial_rotary_factor, do_sample false.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/architecture.h"
#include "model/files/formats/huggingface.h"
#include "model/files/formats/json.h"
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t max_config_bytes = 1u << 20;
constexpr size_t max_ends = 64; // end-of-generation ids

// The members of one object, named in errors as PATH: 'PREFIX.KEY'. A null member counts as absent.
// Each member is read at most once, under its own name and GGUF's. set_label() keeps the own name, so that an error about
// "qwen3.block_count" says "config.json: 'num_hidden_layers'", which the reader of the message can find.
class Members {
  public:
    Members(ModelFile& file, const json& object, std::string path, std::string prefix = {})
        : file_(file), object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

    const json* find(std::string_view key) const {
        const auto found = object_.find(key);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }

    std::string label(std::string_view key) const { return fmt::format("{}: '{}{}'", path_, prefix_, printable(key)); }

    // Copies a scalar to GGUF's key. Errors about that key use this file's name for it from now on, even if it is absent.
    void take(std::string_view key, const std::string& gguf_key) const {
        file_.set_label(gguf_key, label(key));
        if (const json* value = find(key)) file_.mutable_metadata().insert_or_assign(gguf_key, scalar(key, *value));
    }

    // Refuses every value but this one. An absent member is accepted.
    void expect(std::string_view key, const json& only, std::string_view reason) const {
        const json* value = find(key);
        if (value && *value != only) fail("{} is {}; {}", label(key), printable(value->dump()), reason);
    }

    Members object(const char* key) const {
        const json* value = find(key);
        if (!value->is_object()) fail("{} is {}, not an object", label(key), kind_of(*value));
        return {file_, *value, path_, prefix_ + key + '.'};
    }

    // Returns one id or a list of them; none when absent.
    std::vector<uint64_t> ids(const char* key) const {
        const json* value = find(key);
        const json list = !value ? json::array() : value->is_array() ? *value : json::array({*value});
        if (list.size() > max_ends)
            fail("{} has {} entries, more than the {} that tq-run reads", label(key), list.size(), max_ends);
        std::vector<uint64_t> ids;
        for (const json& id : list) {
            if (!id.is_number_unsigned()) fail("{} is neither a token's id nor a list of them", label(key));
            ids.push_back(id.get<uint64_t>());
        }
        return ids;
    }

    const json& all() const { return object_; }
    const std::string& path() const { return path_; }

  private:
    ModelFile::Value scalar(std::string_view key, const json& value) const {
        if (value.is_boolean()) return value.get<bool>();
        if (value.is_number_unsigned()) return value.get<uint64_t>();
        if (value.is_number_integer()) return value.get<int64_t>();
        if (value.is_number_float()) return value.get<double>();
        if (value.is_string()) return file_.add_text(value.get<std::string>());
        fail("{} is {}, not a number or text", label(key), kind_of(value));
    }

    ModelFile& file_;
    const json& object_;
    const std::string path_, prefix_;
};

json read_object(const fs::path& path) {
    json object = read_json_file(path, max_config_bytes);
    if (!object.is_object()) fail("{}: it is {}, not an object", utf8_text(path), kind_of(object));
    return object;
}

// Both model_type and architectures must fit: a fine-tune for classification has the same model_type and another head.
const Architecture& read_architecture(const Members& config) {
    const json* type = config.find("model_type");
    if (!type || !type->is_string()) fail("{} is missing or no text", config.label("model_type"));
    std::string_view name = type->get_ref<const std::string&>();
    const Architecture* found = find_model_type(name);
    if (!found && name.ends_with("_text")) // of a model without the encoders around it
        found = find_model_type(name.substr(0, name.size() - std::string_view("_text").size()));
    if (!found) fail("{} is {}; tq-run runs {} only", config.label("model_type"), printable(type->dump()), model_types());
    const std::string whole(found->class_name), stem = whole.substr(0, whole.rfind("For")),
                                                other = stem + (found->hybrid ? "ForCausalLM" : "Model");
    if (const json* classes = config.find("architectures"); classes && *classes != json::array({other}))
        config.expect("architectures", json::array({whole}), fmt::format("tq-run runs [\"{}\"] and [\"{}\"] only", whole, other));
    return *found;
}

// Whether a layer has a sliding window, if the model uses one: layers from max_window_layers on have it.
bool has_window(const Members& config) {
    const json *first = config.find("max_window_layers"), *layers = config.find("num_hidden_layers");
    return !first || !layers || !first->is_number() || !layers->is_number() || *first < *layers;
}

// These settings have defaults in transformers, so that their absence is no error. Any other value changes the arithmetic, and is
// refused rather than ignored: a model that runs with wrong arithmetic gives plausible, worse answers.
void check_features(const Members& config, const Architecture& architecture) {
    if (const json* act = config.find("hidden_act"); !act || *act != "swish") // the same
        config.expect("hidden_act", "silu", "tq-run runs \"silu\" only");
    if (!architecture.qkv_bias)
        config.expect("attention_bias", false, fmt::format("tq-run runs models of '{}' without biases only", architecture.name));
    if (architecture.experts) {
        config.expect("decoder_sparse_step", 1, "tq-run runs models with experts in every layer only");
        config.expect("mlp_only_layers", json::array(), "tq-run runs models with experts in every layer only");
    }
    config.expect("mlp_bias", false, "tq-run runs models without biases of the feed-forward only");
    config.expect("rope_interleaved", false, "tq-run runs halves of heads only");
    if (has_window(config)) config.expect("use_sliding_window", false, "tq-run runs full attention only");
    config.expect("is_causal", true, "tq-run runs causal attention only");
    if (!architecture.hybrid) config.expect("partial_rotary_factor", 1, "tq-run rotates whole heads only");
    if (const json* types = architecture.hybrid ? nullptr : config.find("layer_types")) {
        for (const json& t : *types) {
            if (t != "full_attention")
                fail("{} has {}; tq-run runs full attention only", config.label("layer_types"), printable(t.dump()));
        }
    }
}

void refuse_quantised(const Members& config) {
    for (const char* key : {"quantization_config", "quantization"}) { // the latter is MLX's
        const json* quantised = config.find(key);
        if (!quantised) continue;
        const auto method = quantised->is_object() ? quantised->find("quant_method") : quantised->end();
        const std::string name = quantised->is_object() && method != quantised->end() ? method->dump() : quantised->dump();
        fail("{} has the method {}, which is not supported: use a GGUF file, or the release without FP8, AWQ, GPTQ or MLX in "
             "its name, which --weights q8_0 or q4_0 quantises at load",
             config.label(key), printable(name));
    }
}

// Reads which layers are recurrent: from layer_types, or from the interval of those that are not.
void take_layer_types(ModelFile& file, const Members& config, const Architecture& a) {
    config.take("full_attention_interval", a.key("full_attention_interval"));
    const json* types = config.find("layer_types");
    if (!types) return;
    const std::string key = a.key("attention.recurrent_layers");
    std::vector<uint64_t> recurrent;
    for (const json& t : *types) {
        if (t != "full_attention" && t != "linear_attention")
            fail("{} has {}; tq-run runs full_attention and linear_attention", config.label("layer_types"), printable(t.dump()));
        recurrent.push_back(t == "linear_attention");
    }
    file.set_label(key, config.label("layer_types"));
    file.mutable_metadata().insert_or_assign(key, std::move(recurrent));
}

// Reads the other keys of hybrids. Their heads are grouped by key head, and the weights of a mixture's experts are normalised.
void take_hybrid(ModelFile& file, const Members& config, const Architecture& a) {
    config.expect("attn_output_gate", true, "tq-run runs gated attention only");
    if (const json* gate = config.find("output_gate_type"); gate && *gate != "swish" && *gate != "silu")
        fail("{} is {}; tq-run runs \"swish\" and \"silu\" only", config.label("output_gate_type"), printable(gate->dump()));
    take_layer_types(file, config, a);
    config.take("linear_num_key_heads", a.key("ssm.group_count"));
    config.take("linear_num_value_heads", a.key("ssm.time_step_rank"));
    config.take("linear_key_head_dim", a.key("ssm.state_size"));
    config.take("linear_conv_kernel_dim", a.key("ssm.conv_kernel"));
    config.take("shared_expert_intermediate_size", a.key("expert_shared_feed_forward_length"));
    const uint64_t heads = file.integer(a.key("ssm.time_step_rank")), size = file.integer(a.key("ssm.state_size"));
    config.expect("linear_value_head_dim", size, fmt::format("tq-run runs heads of values as large as those of keys, {}", size));
    file.mutable_metadata().insert_or_assign(a.key("ssm.inner_size"),
                                             std::min<uint64_t>(heads, UINT32_MAX) * std::min<uint64_t>(size, UINT32_MAX));
    file.mutable_metadata().insert_or_assign(a.key("ssm.v_head_reordered"), false);
    // transformers has the part of a head that RoPE turns in rope_parameters or, in older releases, beside it.
    const json* parameters = config.find("rope_parameters");
    const Members& rope = parameters && parameters->is_object() && parameters->contains("partial_rotary_factor")
                              ? config.object("rope_parameters")
                              : config;
    const std::string key = a.key("rope.dimension_count");
    rope.take("partial_rotary_factor", key);
    const double part = file.real(key, 0.25), turned = double(file.integer(a.key("attention.key_length"))) * part;
    if (!(part > 0 && part <= 1)) fail("{} is {}; tq-run runs parts above 0, up to 1", file.label(key), part);
    file.set_label(key, fmt::format("{}, in channels of a head,", file.label(key)));
    file.mutable_metadata().insert_or_assign(key, uint64_t(std::min(turned, 1e6))); // a wrong head_dim is refused by its own name
}

void take_shape(ModelFile& file, const Members& config, const Architecture& a) {
    file.mutable_metadata().emplace("general.architecture", a.name);
    config.take("num_hidden_layers", a.key("block_count"));
    config.take("max_position_embeddings", a.key("context_length"));
    config.take("hidden_size", a.key("embedding_length"));
    config.take("intermediate_size", a.key("feed_forward_length"));
    if (a.experts) {
        config.take("num_experts", a.key("expert_count"));
        config.take("num_experts_per_tok", a.key("expert_used_count"));
        config.take("moe_intermediate_size", a.key("expert_feed_forward_length"));
        config.take("norm_topk_prob", a.key("expert_weights_norm"));
        file.mutable_metadata().emplace(a.key("expert_weights_norm"), a.hybrid); // if absent, as in transformers
    }
    config.take("num_attention_heads", a.key("attention.head_count"));
    config.take("num_key_value_heads", a.key("attention.head_count_kv"));
    config.take("head_dim", a.key("attention.key_length"));
    config.take("rms_norm_eps", a.key("attention.layer_norm_rms_epsilon"));
    config.take("vocab_size", a.key("vocab_size"));
    config.take("tie_word_embeddings", "tie_word_embeddings"); // GGUF expresses it by leaving out output.weight
}

// transformers' attention_factor is the only factor of cosines and sines; GGUF's attn_factor multiplies YaRN's own 0.1
// ln(factor) + 1.
void take_attention_factor(ModelFile& file, const Members& scaling, const Architecture& a) {
    const std::string key = a.key("rope.scaling.attn_factor");
    scaling.take("attention_factor", key);
    if (!file.find(key)) return;
    const double factor = file.real(a.key("rope.scaling.factor"));
    if (!(factor >= 1)) fail("{} is {}, less than 1", file.label(a.key("rope.scaling.factor")), factor);
    file.mutable_metadata().insert_or_assign(key, file.real(key) / (0.1 * std::log(factor) + 1));
}

void take_scaling(ModelFile& file, const Members& config, const Members& scaling, const Architecture& a) {
    constexpr std::array known{"type",
                               "rope_type",
                               "factor",
                               "original_max_position_embeddings",
                               "attention_factor",
                               "beta_fast",
                               "beta_slow",
                               "low_freq_factor",
                               "high_freq_factor",
                               "rope_theta",
                               "partial_rotary_factor",
                               "truncate"};
    // Keys of other programs, which transformers ignores with a warning.
    constexpr std::array ignored{"finetuned", "attn_factor", "extrapolation_factor"};
    constexpr std::array of_images{"mrope_section", "mrope_interleaved"}; // texts have one position
    const char* type_key = scaling.find("rope_type") ? "rope_type" : "type";
    for (const auto& [key, value] : scaling.all().items()) {
        if (a.hybrid && std::ranges::find(of_images, key) != of_images.end()) continue;
        if (std::ranges::find(ignored, key) != ignored.end())
            file.add_note(fmt::format("{} is ignored, as transformers does", scaling.label(key)));
        else if (std::ranges::find(known, key) == known.end())
            fail("{} is an unknown key, and what it changes is unknown", scaling.label(key));
    }
    if (!a.hybrid) scaling.expect("partial_rotary_factor", 1, "tq-run rotates whole heads only");
    scaling.expect("truncate", true, "tq-run runs true only");
    const std::string type = a.key("rope.scaling.type"), original = a.key("rope.scaling.original_context_length");
    scaling.take(type_key, type);
    if (file.text(type, "default") == "default") {
        file.mutable_metadata().insert_or_assign(type, "none");
        return;
    }
    scaling.take("factor", a.key("rope.scaling.factor"));
    const bool is_llama3 = file.text(type) == "llama3";
    if (is_llama3 || scaling.find("original_max_position_embeddings"))
        scaling.take("original_max_position_embeddings", original);
    else
        config.take("max_position_embeddings", original);
    if (is_llama3)
        for (const char* key : {"low_freq_factor", "high_freq_factor"})
            scaling.take(key, a.key(fmt::format("rope.scaling.{}", key)));
    if (file.text(type) != "yarn") return;
    take_attention_factor(file, scaling, a);
    scaling.take("beta_fast", a.key("rope.scaling.yarn_beta_fast"));
    scaling.take("beta_slow", a.key("rope.scaling.yarn_beta_slow"));
}

// Returns rope_scaling or rope_parameters in one form: with the newer name of the type, and without rope_theta, which the former
// has beside it.
json comparable(json scaling) {
    if (!scaling.is_object()) return scaling;
    if (const auto type = scaling.find("type"); type != scaling.end()) scaling.emplace("rope_type", *type);
    for (const char* key : {"type", "rope_theta"}) scaling.erase(key);
    return scaling;
}

// Reads rope_theta and rope_scaling, or both in rope_parameters, as in newer releases. If both are there, they must be equal.
void take_rope(ModelFile& file, const Members& config, const Architecture& a) {
    const json *const new_form = config.find("rope_parameters"), *const old_form = config.find("rope_scaling");
    const bool has_parameters = new_form, has_scaling = old_form && !new_form;
    if (new_form && old_form && comparable(*new_form) != comparable(*old_form)) {
        fail("{} and 'rope_scaling' are both present and differ: remove the one that does not apply",
             config.label("rope_parameters"));
    }
    config.take("rope_theta", a.key("rope.freq_base"));
    if (has_parameters) {
        const Members parameters = config.object("rope_parameters");
        if (parameters.find("rope_theta")) parameters.take("rope_theta", a.key("rope.freq_base"));
        take_scaling(file, config, parameters, a);
    }
    if (has_scaling) take_scaling(file, config, config.object("rope_scaling"), a);
}

// Notes values that change answers in transformers and not here: those that are neither empty nor the number that changes
// nothing.
void note_sampling(ModelFile& file, const Members& generation) {
    constexpr std::pair<const char*, int> neutral[] = {
        {"typical_p", 1},
        {"top_h", 1},
        {"epsilon_cutoff", 0},
        {"eta_cutoff", 0},
        {"penalty_alpha", 0},
        {"guidance_scale", 1},
        {"dola_layers", 0},
        {"num_beams", 1},
        {"diversity_penalty", 0},
        {"encoder_repetition_penalty", 1},
        {"no_repeat_ngram_size", 0},
        {"encoder_no_repeat_ngram_size", 0},
        {"exponential_decay_length_penalty", 0},
        {"min_length", 0},
        {"min_new_tokens", 0},
        {"bad_words_ids", 0},
        {"force_words_ids", 0},
        {"constraints", 0},
        {"sequence_bias", 0},
        {"suppress_tokens", -1},
        {"begin_suppress_tokens", -1},
        {"forced_bos_token_id", -1},
        {"forced_eos_token_id", -1},
        {"stop_strings", 0},
        {"watermarking_config", 0},
    };
    std::string ignored;
    for (const auto& [key, number] : neutral)
        if (const json* value = generation.find(key); value && !value->empty() && *value != false && *value != number)
            ignored += fmt::format("{}{}", ignored.empty() ? "" : ", ", key);
    if (!ignored.empty())
        file.add_note(fmt::format("{}: tq-run has no such sampling, and ignores {}", generation.path(), ignored));
}

void take_sampling(ModelFile& file, const Members& generation) {
    generation.take("temperature", "general.sampling.temp");
    generation.take("do_sample", "general.sampling.do_sample");
    if (!file.boolean("general.sampling.do_sample", true)) // the most probable token, whatever the temperature
        file.mutable_metadata().insert_or_assign("general.sampling.temp", 0.0);
    generation.take("top_k", "general.sampling.top_k");
    generation.take("top_p", "general.sampling.top_p");
    generation.take("min_p", "general.sampling.min_p");
    generation.take("repetition_penalty", "general.sampling.penalty_repeat");
    generation.take("presence_penalty", "general.sampling.penalty_present");
    generation.take("frequency_penalty", "general.sampling.penalty_freq");
    note_sampling(file, generation);
}

void set_ends(ModelFile& file, const fs::path& directory, const std::vector<uint64_t>& ids) {
    if (ids.empty()) return;
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_ids"})
        file.set_label(key, fmt::format("{}: 'eos_token_id' of config.json or generation_config.json", utf8_text(directory)));
    file.mutable_metadata().insert_or_assign("tokenizer.ggml.eos_token_id", ids[0]);
    file.mutable_metadata().insert_or_assign("tokenizer.ggml.eos_token_ids", ids);
}

} // namespace

void read_huggingface_config(ModelFile& file, const fs::path& directory) {
    const json config_json = read_object(directory / "config.json");
    const Members whole(file, config_json, utf8_text(directory / "config.json"));
    const Architecture& architecture = read_architecture(whole);
    refuse_quantised(whole);
    whole.take("tie_word_embeddings", "tie_word_embeddings");
    const Members config = architecture.hybrid && whole.find("text_config") ? whole.object("text_config") : whole;
    refuse_quantised(config);
    check_features(config, architecture);
    take_shape(file, config, architecture);
    if (architecture.hybrid) take_hybrid(file, config, architecture);
    take_rope(file, config, architecture);
    std::vector<uint64_t> ends = config.ids("eos_token_id");
    const fs::path generation_path = directory / "generation_config.json";
    if (is_there(generation_path)) {
        const json generation_json = read_object(generation_path);
        const Members generation(file, generation_json, utf8_text(generation_path));
        take_sampling(file, generation);
        const std::vector<uint64_t> more = generation.ids("eos_token_id");
        ends.insert(ends.begin(), more.begin(), more.end());
    }
    set_ends(file, directory, ends);
}

} // namespace tq
