// Models without files, for benchmarks, plans and tests: the shape of a released model, random weights in a given mix of formats.
// Metadata is that of a GGUF file, and goes through read_config() and collect_weights() as a file's would. Each tensor has a seed
// of its own, made of its name, so leaving out layers does not change the others.
// Random weights are scaled so that activations stay of one size through all layers: a matrix has the standard deviation 1 /
// sqrt(columns).
#include "model/weights/synthetic/synthetic.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/weights/mixes.h"
#include "model/weights/synthetic/synthetic_rows.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/ranges.h>

namespace tq {
namespace {

struct Shape {
    std::string_view name;
    uint32_t hidden, intermediate, layers, heads;
    bool tied;
    uint32_t positions;
    float theta;
    uint32_t kv_heads = 8, experts = 0, experts_per_token = 0; // intermediate: of an expert
    std::string_view hybrid = {};                              // model_type of one
    uint32_t value_heads = 0;                                  // of its recurrent layers, with 16 key heads
};

constexpr uint32_t old_vocabulary = 151936, vocabulary = 248320, head_dim = 128, hybrid_head_dim = 256;
constexpr uint32_t hybrid_interval = 4; // one layer in this many has attention
constexpr Shape shapes[] = {
    {"qwen3-0.6b", 1024, 3072, 28, 16, true, 40960, 1e6f},
    {"qwen3-1.7b", 2048, 6144, 28, 16, true, 40960, 1e6f},
    {"qwen3-4b", 2560, 9728, 36, 32, true, 40960, 1e6f},
    {"qwen3-4b-2507", 2560, 9728, 36, 32, true, 262144, 5e6f},
    {"qwen3-8b", 4096, 12288, 36, 32, false, 40960, 1e6f},
    {"qwen3-14b", 5120, 17408, 40, 40, false, 40960, 1e6f},
    {"qwen3-32b", 5120, 25600, 64, 64, false, 40960, 1e6f},
    {"qwen3-30b-a3b", 2048, 768, 48, 32, false, 40960, 1e6f, 4, 128, 8},
    {"qwen3-30b-a3b-2507", 2048, 768, 48, 32, false, 262144, 1e7f, 4, 128, 8},
    {"qwen3-235b-a22b", 4096, 1536, 94, 64, false, 40960, 1e6f, 4, 128, 8},
    {"qwen3.5-0.8b", 1024, 3584, 24, 8, true, 262144, 1e7f, 2, 0, 0, "qwen3_5", 16},
    {"qwen3.5-2b", 2048, 6144, 24, 8, true, 262144, 1e7f, 2, 0, 0, "qwen3_5", 16},
    {"qwen3.5-4b", 2560, 9216, 32, 16, true, 262144, 1e7f, 4, 0, 0, "qwen3_5", 32},
    {"qwen3.5-9b", 4096, 12288, 32, 16, false, 262144, 1e7f, 4, 0, 0, "qwen3_5", 32},
    {"qwen3.8-27b", 5120, 17408, 64, 24, false, 262144, 1e7f, 4, 0, 0, "qwen3_5", 48},
    {"qwen3.5-35b-a3b", 2048, 512, 40, 16, false, 262144, 1e7f, 2, 256, 8, "qwen3_5_moe", 32},
    {"qwen3-next-80b-a3b", 2048, 512, 48, 16, false, 262144, 1e7f, 2, 512, 10, "qwen3_next", 32},
};

struct Mixture {
    std::string name;
    GgmlType type; // of most matrices
};

// Returns llama.cpp's mixtures, and the other weight formats by themselves (K formats except for the head: mixture_type).
std::vector<Mixture> mixtures() {
    std::vector<Mixture> all;
    for (const GgmlType type : weight_formats)
        if (type != GgmlType::Q4_K && type != GgmlType::Q5_K) all.push_back({lowercase(type_name(type)), type});
    for (const GgmlType type : {GgmlType::Q4_K, GgmlType::Q5_K})
        for (const char* more_bits : {"_s", "_m"}) all.push_back({lowercase(type_name(type)) + more_bits, type});
    return all;
}

template <class List> auto find_named(const List& list, std::string_view name) {
    using T = std::ranges::range_value_t<List>;
    const auto found = std::ranges::find_if(list, [&](const T& one) { return one.name == name; });
    return found == std::end(list) ? std::nullopt : std::optional(*found);
}

template <class List> std::string names(const List& list) {
    std::vector<std::string_view> all;
    for (const auto& entry : list) all.push_back(entry.name);
    return fmt::format("{}", fmt::join(all, " "));
}

// FNV-1a, so that a tensor's rows do not depend on the rest of the model.
uint32_t seed_of(std::string_view name, uint32_t seed) {
    uint32_t h = 0x811c9dc5u ^ seed;
    for (const char c : name) h = (h ^ uint8_t(c)) * 0x01000193u;
    return h;
}

class SyntheticSource final : public TensorSource {
  public:
    SyntheticSource(const SyntheticModel& model, uint32_t seed) : model_(model), seed_(seed) {}

    bool has(const std::string& name) const override {
        return (name == "output.weight" && !model_.tied) || name.ends_with(".shared_head_norm.weight");
    }

    Tensor matrix(const std::string& name, uint32_t rows, uint32_t cols) override {
        const GgmlType type = mixture_type(model_, matrix_name(name), layer(name));
        return synthetic_matrix(name, type, rows, cols, 1 / std::sqrt(double(cols)), seed_of(name, seed_));
    }

    Tensor experts(const std::string& name, uint32_t count, uint32_t rows, uint32_t cols) override {
        return matrix(name + "_exps.weight", count * rows, cols);
    }

    // Rates of decay are below 0, and gates near 0.
    Tensor vector(const std::string& name, uint32_t cols) override {
        const uint32_t seed = seed_of(name, seed_);
        if (name.ends_with(".ssm_a")) return synthetic_vector(name, cols, -1.25f, -0.75f, seed);
        if (name.ends_with(".ssm_dt.bias")) return synthetic_vector(name, cols, -4, -1, seed);
        if (name.ends_with("_shexp.weight")) return synthetic_vector(name, cols, -0.05f, 0.05f, seed);
        return synthetic_norm(name, cols, seed);
    }
    Tensor table(const std::string& name, uint32_t rows, uint32_t cols) override {
        return synthetic_vector(name, rows * cols, -0.5f, 0.5f, seed_of(name, seed_));
    }

  private:
    // Returns "attn_v" for "blk.3.attn_v.weight".
    static std::string_view matrix_name(std::string_view name) {
        name.remove_suffix(std::string_view(".weight").size());
        return name.substr(name.rfind('.') + 1); // npos + 1 is 0
    }
    static uint32_t layer(const std::string& name) { return name.starts_with("blk.") ? uint32_t(std::stoul(name.substr(4))) : 0; }

    const SyntheticModel& model_;
    uint32_t seed_;
};

void put_hybrid(ModelFile::Metadata& keys, const Config& c) {
    const auto size = [&](const char* rest, uint64_t value) { keys[c.architecture->key(rest)] = value; };
    size("full_attention_interval", hybrid_interval);
    size("rope.dimension_count", c.rotary_dim);
    size("ssm.group_count", c.recurrent->key_heads);
    size("ssm.time_step_rank", c.recurrent->value_heads);
    size("ssm.state_size", c.recurrent->head_dim);
    size("ssm.inner_size", c.recurrent->value_size());
    size("ssm.conv_kernel", c.recurrent->conv_kernel);
    if (c.num_experts != 0) size("expert_shared_feed_forward_length", c.shared_expert_intermediate_size);
}

void put_config(ModelFile& file, const SyntheticModel& model) {
    const Config& c = model.config;
    ModelFile::Metadata& keys = file.mutable_metadata();
    const auto key = [&](const char* rest) { return c.architecture->key(rest); };
    const auto size = [&](const char* rest, uint64_t value) { keys[key(rest)] = value; };
    keys["general.architecture"] = c.architecture->name;
    keys["general.name"] = file.add_text(model.name + ", random weights");
    size("block_count", c.num_hidden_layers + c.nextn_predict_layers);
    if (c.nextn_predict_layers != 0) size("nextn_predict_layers", c.nextn_predict_layers);
    size("context_length", c.max_position_embeddings);
    size("embedding_length", c.hidden_size);
    size("feed_forward_length", c.intermediate_size);
    if (c.num_experts != 0) {
        size("expert_count", c.num_experts);
        size("expert_used_count", c.num_experts_per_tok);
        size("expert_feed_forward_length", c.moe_intermediate_size);
    }
    size("attention.head_count", c.num_attention_heads);
    size("attention.head_count_kv", c.num_key_value_heads);
    size("attention.key_length", c.head_dim);
    size("attention.value_length", c.head_dim);
    if (c.recurrent) put_hybrid(keys, c);
    keys[key("rope.freq_base")] = double(c.rope_theta);
    keys[key("attention.layer_norm_rms_epsilon")] = double(c.rms_norm_eps);
}

// Sets the other sizes of hybrids.
void set_hybrid(Config& c, const Shape& shape) {
    c.vocab_size = shape.hybrid == "qwen3_next" ? old_vocabulary : vocabulary;
    c.architecture = find_model_type(shape.hybrid);
    c.head_dim = hybrid_head_dim;
    c.rotary_dim = hybrid_head_dim / 4;
    c.gated_attention = true;
    c.shared_expert_intermediate_size = shape.experts != 0 ? shape.intermediate : 0;
    c.recurrent = {.key_heads = 16,
                   .value_heads = shape.value_heads,
                   .head_dim = 128,
                   .conv_kernel = 4,
                   .tiled_heads = c.architecture->tiled_heads};
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++)
        c.recurrent_layers.push_back((layer + 1) % hybrid_interval != 0);
}

} // namespace

SyntheticModel parse_synthetic(std::string_view text, uint32_t layers) {
    const std::string name = lowercase(text);
    const size_t colon = std::min(name.find(':'), name.size());
    const std::string mixture = colon == name.size() ? "q8_0" : name.substr(colon + 1);
    constexpr std::string_view with_mtp = "+mtp";
    std::string_view shape_name = std::string_view(name).substr(0, colon);
    const bool mtp = shape_name.ends_with(with_mtp);
    if (mtp) shape_name.remove_suffix(with_mtp.size());
    const auto shape = find_named(shapes, shape_name);
    if (!shape) fail("unknown shape '{}': use one of {}", printable(name.substr(0, colon)), names(shapes));
    if (mtp && shape->hybrid.empty()) fail("{} has no head for multi-token prediction: leave out {}", shape->name, with_mtp);
    if (!find_named(mixtures(), mixture))
        fail("unknown mixture of weight formats '{}': use one of {}", printable(mixture), names(mixtures()));
    if (layers > shape->layers) fail("{} has {} layers, not {}", shape->name, shape->layers, layers);
    if (!shape->hybrid.empty() && layers != 0 && layers < hybrid_interval)
        fail("the first layer of {} with attention is number {}: take at least so many", shape->name, hybrid_interval);

    SyntheticModel model{
        fmt::format("{}{}:{}", shape->name, mtp ? with_mtp : "", mixture), {}, shape->layers, shape->tied, mixture};
    model.config = {.vocab_size = old_vocabulary,
                    .hidden_size = shape->hidden,
                    .intermediate_size = shape->intermediate * std::max(shape->experts_per_token, 1u),
                    .num_hidden_layers = layers == 0 ? shape->layers : layers,
                    .num_attention_heads = shape->heads,
                    .num_key_value_heads = shape->kv_heads,
                    .head_dim = head_dim,
                    .max_position_embeddings = shape->positions,
                    .rope_theta = shape->theta,
                    .rms_norm_eps = 1e-6f};
    if (shape->experts != 0) {
        model.config.architecture = find_model_type("qwen3_moe");
        model.config.num_experts = shape->experts;
        model.config.num_experts_per_tok = shape->experts_per_token;
        model.config.moe_intermediate_size = shape->intermediate;
    }
    if (!shape->hybrid.empty()) set_hybrid(model.config, *shape);
    model.config.nextn_predict_layers = mtp ? 1 : 0;
    return model;
}

GgmlType mixture_type(const SyntheticModel& model, std::string_view name, uint32_t layer) {
    const auto mixture = find_named(mixtures(), model.mixture);
    ENSURE(mixture.has_value(), "{}", model.mixture);
    const bool is_k = model.mixture.find("_k") != std::string::npos;
    const bool is_head = name == "output" || (name == "token_embd" && model.tied);
    if (name == "ffn_gate_inp" || name == "ssm_beta" || name == "ssm_alpha") return GgmlType::F32;
    if (is_k && is_head) return GgmlType::Q6_K;
    const bool more_bits = has_more_bits(layer, model.full_depth);
    if (model.mixture.ends_with("_m") && more_bits && (name == "attn_v" || name.starts_with("ffn_down"))) return GgmlType::Q6_K;
    return mixture->type;
}

Model make_synthetic(const SyntheticModel& model, uint32_t seed) {
    ModelFile file(model.name);
    put_config(file, model);
    put_synthetic_vocabulary(file, model.config.vocab_size);
    const Config config = read_config(file, model.config.nextn_predict_layers != 0);
    SyntheticSource source(model, seed);
    Weights weights = collect_weights(source, config);
    Tokenizer tokenizer(file);
    const ChatVariant chat = chat_variant(file);
    return {.file = std::move(file),
            .config = config,
            .weights = std::move(weights),
            .tokenizer = std::move(tokenizer),
            .chat = chat,
            .name = model.name};
}

} // namespace tq
