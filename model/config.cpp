#include "model/config.h"
#include "base/error.h"
#include "base/printable.h"
#include <algorithm>
#include <array>

namespace tq {
namespace {

// Far above any Qwen3, but low enough that products of two sizes cannot overflow.
constexpr uint64_t max_size = 1u << 20, max_heads = 1024, max_vocab = 1u << 24, max_positions = 1u << 30;
constexpr double max_rope_factor = 1024;

uint32_t read_size(const ModelFile& file, std::string_view key, uint64_t most, uint64_t multiple = 1) {
    const uint64_t value = file.integer(key);
    if (value == 0 || value > most || value % multiple != 0) {
        fail("{} is {}; tq-run runs {} to {}, in steps of {}", file.label(key), value, multiple, most, multiple);
    }
    return uint32_t(value);
}

float read_real(const ModelFile& file, std::string_view key, double least, double most) {
    const double value = file.real(key);
    if (!(value >= least && value <= most)) { // also when it is NaN
        fail("{} is {}; tq-run runs {} to {}", file.label(key), value, least, most);
    }
    return float(value);
}

// Returns the rows of the embedding, usually with padding rows; a vocabulary-only file has just the vocabulary.
uint32_t read_vocab_size(const ModelFile& file) {
    const auto* tokens = file.find("tokenizer.ggml.tokens");
    const uint64_t vocabulary = tokens ? file.strings("tokenizer.ggml.tokens").size() : 0;
    const FileTensor* embedding = file.find_tensor("token_embd.weight");
    const uint64_t rows = embedding ? embedding->ne[1] : vocabulary;
    if (rows == 0) fail("{}: it has neither a tensor 'token_embd.weight' nor a vocabulary", file.path().string());
    if (rows > max_vocab)
        fail("{}: a vocabulary of {}, more than the {} that tq-run runs", file.path().string(), rows, max_vocab);
    if (rows < vocabulary) {
        fail("{}: 'token_embd.weight' has {} rows for a vocabulary of {}", file.path().string(), rows, vocabulary);
    }
    return uint32_t(rows);
}

void check_heads(const ModelFile& file, const Config& c) {
    const std::string path = file.path().string();
    if (c.head_dim != 64 && c.head_dim != 128 && c.head_dim != 256) {
        fail("{} is {}; tq-run runs 64, 128 and 256", file.label("qwen3.attention.key_length"), c.head_dim);
    }
    for (const auto* key : {"qwen3.attention.value_length", "qwen3.rope.dimension_count"}) {
        const uint64_t value = file.integer(key, c.head_dim);
        if (value != c.head_dim) fail("{} is {}, but the head dimension is {}", file.label(key), value, c.head_dim);
    }
    if (c.num_attention_heads % c.num_key_value_heads != 0 || c.num_attention_heads / c.num_key_value_heads > 8) {
        fail("{}: {} query heads on {} key/value heads; tq-run runs 1 to 8 whole query heads per key/value head", path,
             c.num_attention_heads, c.num_key_value_heads);
    }
}

uint32_t stretched_positions(const RopeScaling& scaling) {
    return uint32_t(std::min(double(scaling.original_context_length) * double(scaling.factor), double(max_positions)));
}

// `from`: the source of the numbers, for messages.
void check_yarn(const RopeScaling& scaling, float theta, const std::string& from) {
    if (scaling.type != RopeScalingType::yarn) return;
    if (scaling.beta_fast < scaling.beta_slow)
        fail("{}: YaRN's beta_fast is {}, below its beta_slow of {}", from, scaling.beta_fast, scaling.beta_slow);
    if (theta <= 1) fail("{}: YaRN divides by the logarithm of the RoPE frequency base, which is {}", from, theta);
}

// Refuses keys that llama.cpp would apply and this program does not.
void refuse_other_scaling(const ModelFile& file, const RopeScaling& scaling) {
    const auto refuse = [&](const char* key, double usual, bool is_usual) {
        if (!is_usual)
            fail("{} is {}; with RoPE scaling '{}' tq-run runs {} only", file.label(key), file.real(key), name(scaling.type),
                 usual);
    };
    const double extrapolation = file.real("qwen3.rope.scaling.yarn_ext_factor", -1); // below 0: the type's own
    const double usual = scaling.type == RopeScalingType::yarn ? 1 : 0;
    refuse("qwen3.rope.scaling.yarn_ext_factor", usual, extrapolation < 0 || extrapolation == usual);
    refuse("qwen3.rope.scaling.yarn_log_multiplier", 0, file.real("qwen3.rope.scaling.yarn_log_multiplier", 0) == 0);
    if (scaling.type == RopeScalingType::none)
        refuse("qwen3.rope.scaling.attn_factor", 1, file.real("qwen3.rope.scaling.attn_factor", 1) == 1);
}

// Reads the scaling. A factor without a type means linear scaling, as in llama.cpp.
RopeScaling read_rope_scaling(const ModelFile& file, uint32_t context_length, float theta) {
    const std::string path = file.path().string();
    const std::string_view type =
        file.text("qwen3.rope.scaling.type", file.find("qwen3.rope.scaling.factor") ? "linear" : "none");
    if (type != "none" && type != "linear" && type != "yarn") {
        fail("{} is '{}'; tq-run runs none, linear and yarn", file.label("qwen3.rope.scaling.type"), printable(type));
    }
    RopeScaling scaling;
    scaling.type = parse_rope_scaling(type);
    scaling.original_context_length = context_length;
    refuse_other_scaling(file, scaling);
    if (scaling.type == RopeScalingType::none) return scaling;

    const auto read = [&](const char* key, float fallback, double least, double most) {
        return file.find(key) ? read_real(file, key, least, most) : fallback;
    };
    scaling.factor = read_real(file, "qwen3.rope.scaling.factor", 1, max_rope_factor);
    if (file.find("qwen3.rope.scaling.original_context_length"))
        scaling.original_context_length = read_size(file, "qwen3.rope.scaling.original_context_length", max_positions);
    scaling.attn_factor =
        read("qwen3.rope.scaling.attn_factor", 1, 1e-3, 1e3) * read("qwen3.rope.scaling.yarn_attn_factor", 1, 1e-3, 1e3);
    scaling.beta_fast = read("qwen3.rope.scaling.yarn_beta_fast", scaling.beta_fast, 1e-3, 1e6);
    scaling.beta_slow = read("qwen3.rope.scaling.yarn_beta_slow", scaling.beta_slow, 1e-3, 1e6);
    check_yarn(scaling, theta, path);
    return scaling;
}

constexpr std::array rope_scaling_names{"none", "linear", "yarn"}; // by RopeScalingType

} // namespace

const char* name(RopeScalingType type) { return rope_scaling_names[size_t(type)]; }

RopeScalingType parse_rope_scaling(std::string_view name) {
    const auto* found = std::ranges::find(rope_scaling_names, name);
    if (found == rope_scaling_names.end()) fail("it must be none, linear or yarn, not {}", printable(name));
    return RopeScalingType(found - rope_scaling_names.begin());
}

Config with_rope(Config config, const RopeOverrides& o) {
    RopeScaling& scaling = config.rope_scaling;
    config.rope_theta = o.theta.value_or(config.rope_theta);
    if (o.type || o.factor || o.original_context_length) {
        const bool was_none = scaling.type == RopeScalingType::none;
        scaling.type = o.type.value_or(was_none && o.factor ? RopeScalingType::linear : scaling.type);
        if (scaling.type == RopeScalingType::none && (o.factor || o.original_context_length))
            fail("--rope-scale and --yarn-orig-ctx need RoPE scaling: add --rope-scaling yarn");
        if (scaling.type == RopeScalingType::none) scaling = {.original_context_length = scaling.original_context_length};
        if (scaling.type != RopeScalingType::none && was_none && !o.factor)
            fail("--rope-scaling {} needs a factor: add --rope-scale 4 for a context four times as long", name(scaling.type));
        scaling.factor = o.factor.value_or(scaling.factor);
        scaling.original_context_length = o.original_context_length.value_or(scaling.original_context_length);
        config.max_position_embeddings = stretched_positions(scaling);
    }
    if ((o.attn_factor || o.beta_fast || o.beta_slow) && scaling.type != RopeScalingType::yarn)
        fail("--yarn-attn-factor, --yarn-beta-fast and --yarn-beta-slow need YaRN, but this model's RoPE scaling is {}: add "
             "--rope-scaling yarn",
             name(scaling.type));
    scaling.attn_factor = o.attn_factor.value_or(scaling.attn_factor);
    scaling.beta_fast = o.beta_fast.value_or(scaling.beta_fast);
    scaling.beta_slow = o.beta_slow.value_or(scaling.beta_slow);
    check_yarn(scaling, config.rope_theta, "the flags of RoPE");
    return config;
}

Config read_config(const ModelFile& file) {
    const std::string_view architecture = file.text("general.architecture");
    if (architecture != "qwen3") {
        fail("{}: its architecture is '{}', and tq-run runs dense Qwen3 ('qwen3') only: choose such a model, as with -hf "
             "Qwen/Qwen3-4B-GGUF",
             file.path().string(), printable(architecture));
    }
    Config c{};
    c.vocab_size = read_vocab_size(file);
    c.hidden_size = read_size(file, "qwen3.embedding_length", max_size, 32);
    c.intermediate_size = read_size(file, "qwen3.feed_forward_length", max_size, 32);
    c.num_hidden_layers = read_size(file, "qwen3.block_count", max_layers);
    c.num_attention_heads = read_size(file, "qwen3.attention.head_count", max_heads);
    c.num_key_value_heads = read_size(file, "qwen3.attention.head_count_kv", max_heads);
    c.head_dim = read_size(file, "qwen3.attention.key_length", max_size);
    c.max_position_embeddings = read_size(file, "qwen3.context_length", max_positions);
    c.rope_theta = read_real(file, "qwen3.rope.freq_base", 1, 1e12);
    c.rope_scaling = read_rope_scaling(file, c.max_position_embeddings, c.rope_theta);
    c.max_position_embeddings = std::max(c.max_position_embeddings, stretched_positions(c.rope_scaling));
    c.rms_norm_eps = read_real(file, "qwen3.attention.layer_norm_rms_epsilon", 1e-20, 1);
    check_heads(file, c);
    return c;
}

} // namespace tq
