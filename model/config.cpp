// Reads a model's sizes and constants from its metadata, and refuses models that this program would compute otherwise than they
// were trained. Each number has a range: far above any model that exists, and low enough that products of two of them do not
// overflow 64 bits. So code behind Config multiplies without checks. Three kinds of keys: those that every file of an
// architecture has; those with a default, as llama.cpp has it; and those that are only read to be refused (refuse_features(),
// refuse_other_scaling()).
#include "model/config.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/pass_rows.h"
#include "model/rope.h"
#include <algorithm>
#include <array>
#include <cstring>

namespace tq {
namespace {

// Far above any model of these architectures, but low enough that products of two sizes cannot overflow.
constexpr uint64_t max_size = 1u << 20, max_heads = 1024, max_vocab = 1u << 24, max_positions = 1u << 30;
constexpr uint32_t max_group = 16; // query heads of a key/value head
constexpr double max_rope_factor = 1024;
constexpr uint32_t recurrent_head_dim = 128, recurrent_kernel = 4; // of every released hybrid

// The keys of a file that begin with its architecture's name, by the rest of their names.
class Keys {
  public:
    explicit Keys(const ModelFile& file) : architecture(architecture_of(file)), file(file) {}

    bool has(std::string_view key) const { return file.find(architecture.key(key)) != nullptr; }
    std::string label(std::string_view key) const { return file.label(architecture.key(key)); }

    uint32_t size(std::string_view key, uint64_t max, uint64_t multiple = 1) const {
        const uint64_t value = of_all_layers(key);
        if (value == 0 || value > max || value % multiple != 0) {
            fail("{} is {}; tq-run runs {} to {}, in steps of {}", label(key), value, multiple, max, multiple);
        }
        return uint32_t(value);
    }

    // Returns `fallback` if the key is absent.
    uint64_t integer(std::string_view key, uint64_t fallback) const { return file.integer(architecture.key(key), fallback); }
    double real(std::string_view key, double fallback) const { return file.real(architecture.key(key), fallback); }
    std::string_view text(std::string_view key, std::string_view fallback) const {
        return file.text(architecture.key(key), fallback);
    }

    float real_between(std::string_view key, double min, double max) const {
        const double value = file.real(architecture.key(key));
        if (!(value >= min && value <= max)) { // also when it is NaN
            fail("{} is {}; tq-run runs {} to {}", label(key), value, min, max);
        }
        return float(value);
    }

    const Architecture& architecture;
    const ModelFile& file;

  private:
    // Some writers give a number for each layer, and 0 for the layers of a hybrid that do not have it.
    uint64_t of_all_layers(std::string_view key) const {
        const std::string name = architecture.key(key);
        const ModelFile::Value* value = file.find(name);
        const bool is_list = value && (std::holds_alternative<std::vector<uint64_t>>(*value) ||
                                       std::holds_alternative<std::vector<int64_t>>(*value));
        if (!is_list) return file.integer(name);
        std::vector<uint64_t> values = file.integers(name);
        const uint64_t layers = file.integer(architecture.key("block_count")), own = layers - integer("nextn_predict_layers", 0);
        if (values.size() != layers && values.size() != own)
            fail("{} has {} values for {} layers", label(key), values.size(), layers);
        if (architecture.hybrid) std::erase(values, 0u);
        if (values.empty() || std::ranges::count(values, values[0]) != std::ptrdiff_t(values.size()))
            fail("{} has different values for layers, and tq-run runs models whose layers are alike", label(key));
        return values[0];
    }
};

// Returns the rows of the embedding, usually with padding rows; a vocabulary-only file has just the vocabulary.
uint32_t read_vocab_size(const ModelFile& file) {
    const auto* tokens = file.find("tokenizer.ggml.tokens");
    const uint64_t vocabulary = tokens ? file.strings("tokenizer.ggml.tokens").size() : 0;
    const FileTensor* embedding = file.find_tensor("token_embd.weight");
    const uint64_t rows = embedding ? embedding->ne[1] : vocabulary;
    if (rows == 0) fail("{}: it has neither a tensor 'token_embd.weight' nor a vocabulary", utf8_text(file.path()));
    if (rows > max_vocab)
        fail("{}: a vocabulary of {}, more than the {} that tq-run runs", utf8_text(file.path()), rows, max_vocab);
    if (rows < vocabulary) {
        fail("{}: 'token_embd.weight' has {} rows for a vocabulary of {}", utf8_text(file.path()), rows, vocabulary);
    }
    return uint32_t(rows);
}

// Reads the sizes of heads. A head dimension of its own may differ from hidden_size / num_attention_heads (Qwen3-0.6B: 128, not
// 64).
void read_heads(const Keys& keys, Config& c) {
    const bool complete = keys.architecture.complete;
    const char* const key_length = "attention.key_length";
    const std::string path = utf8_text(keys.file.path());
    c.num_attention_heads = keys.size("attention.head_count", max_heads);
    c.num_key_value_heads =
        complete || keys.has("attention.head_count_kv") ? keys.size("attention.head_count_kv", max_heads) : c.num_attention_heads;
    c.head_dim = complete || keys.has(key_length) ? keys.size(key_length, max_size) : c.hidden_size / c.num_attention_heads;
    if (c.head_dim != 64 && c.head_dim != 128 && c.head_dim != 256) {
        fail("{} is {}; tq-run runs 64, 128 and 256",
             complete || keys.has(key_length)
                 ? keys.label(key_length)
                 : fmt::format("{}: the size of a head, {} / {},", path, c.hidden_size, c.num_attention_heads),
             c.head_dim);
    }
    for (const auto* key : {"attention.value_length", "rope.dimension_count"}) {
        const uint64_t value = keys.integer(key, c.head_dim);
        const bool is_part = keys.architecture.hybrid && key == std::string_view("rope.dimension_count") && value != 0 &&
                             value < c.head_dim && value % 32 == 0;
        if (is_part) c.rotary_dim = uint32_t(value);
        if (value != c.head_dim && !is_part) fail("{} is {}, but the head dimension is {}", keys.label(key), value, c.head_dim);
    }
    if (c.num_attention_heads % c.num_key_value_heads != 0 || c.num_attention_heads / c.num_key_value_heads > max_group) {
        fail("{}: {} query heads on {} key/value heads; tq-run runs 1 to {} whole query heads per key/value head", path,
             c.num_attention_heads, c.num_key_value_heads, max_group);
    }
}

uint32_t stretched_positions(const RopeScaling& scaling) {
    return uint32_t(std::min(double(scaling.original_context_length) * double(scaling.factor), double(max_context)));
}

// `from`: the source of the numbers, for messages.
void check_yarn(const RopeScaling& scaling, float theta, const std::string& from) {
    if (scaling.type != RopeScalingType::yarn) return;
    if (scaling.beta_fast < scaling.beta_slow)
        fail("{}: YaRN's beta_fast is {}, below its beta_slow of {}", from, scaling.beta_fast, scaling.beta_slow);
    if (theta <= 1) fail("{}: YaRN divides by the logarithm of the RoPE frequency base, which is {}", from, theta);
}

// Refuses keys that llama.cpp would apply and this program does not.
void refuse_other_scaling(const Keys& keys, const RopeScaling& scaling) {
    const auto refuse = [&](const char* key, double usual, bool is_usual) {
        if (!is_usual)
            fail("{} is {}; with RoPE scaling '{}' tq-run runs {} only", keys.label(key), keys.real(key, usual),
                 name(scaling.type), usual);
    };
    const double extrapolation = keys.real("rope.scaling.yarn_ext_factor", -1); // below 0: the type's own
    const double usual = scaling.type == RopeScalingType::yarn ? 1 : 0;
    refuse("rope.scaling.yarn_ext_factor", usual, extrapolation < 0 || extrapolation == usual);
    refuse("rope.scaling.yarn_log_multiplier", 0, keys.real("rope.scaling.yarn_log_multiplier", 0) == 0);
    if (scaling.type == RopeScalingType::none)
        refuse("rope.scaling.attn_factor", 1, keys.real("rope.scaling.attn_factor", 1) == 1);
}

// Reads the scaling. A factor without a type means linear scaling, as in llama.cpp.
RopeScaling read_rope_scaling(const Keys& keys, uint32_t context_length, float theta) {
    const char* const factor = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear"; // of files of 2023
    const std::string_view type = keys.text("rope.scaling.type", keys.has(factor) ? "linear" : "none");
    if (type != "none" && type != "linear" && type != "yarn" && type != "llama3") {
        fail("{} is '{}'; tq-run runs none, linear, yarn and llama3", keys.label("rope.scaling.type"), printable(type));
    }
    RopeScaling scaling;
    scaling.type = type == "llama3" ? RopeScalingType::none : parse_rope_scaling(type); // llama3 is in rope_factors
    scaling.original_context_length = context_length;
    refuse_other_scaling(keys, scaling);
    if (scaling.type == RopeScalingType::none) return scaling;

    const auto read = [&](const char* key, float fallback, double min, double max) {
        return keys.has(key) ? keys.real_between(key, min, max) : fallback;
    };
    scaling.factor = keys.real_between(keys.has(factor) ? factor : "rope.scaling.factor", 1, max_rope_factor);
    if (keys.has("rope.scaling.original_context_length"))
        scaling.original_context_length = keys.size("rope.scaling.original_context_length", max_positions);
    scaling.attn_factor = read("rope.scaling.attn_factor", 1, 1e-3, 1e3) * read("rope.scaling.yarn_attn_factor", 1, 1e-3, 1e3);
    scaling.beta_fast = read("rope.scaling.yarn_beta_fast", scaling.beta_fast, 1e-3, 1e6);
    scaling.beta_slow = read("rope.scaling.yarn_beta_slow", scaling.beta_slow, 1e-3, 1e6);
    check_yarn(scaling, theta, utf8_text(keys.file.path()));
    return scaling;
}

std::vector<float> read_llama3(const Keys& keys, const Config& c) {
    const char* const high = "rope.scaling.high_freq_factor";
    const Llama3Rope scaling{keys.real_between("rope.scaling.factor", 1, max_rope_factor),
                             keys.real_between("rope.scaling.low_freq_factor", 1e-3, 1e6), keys.real_between(high, 1e-3, 1e6),
                             double(keys.size("rope.scaling.original_context_length", max_positions))};
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
        fail("{} is {}, not above the low_freq_factor of {}", keys.label(high), scaling.high_freq_factor,
             scaling.low_freq_factor);
    return llama3_factors(scaling, c.rope_theta, c.head_dim);
}

// Returns the factors in the file's rope_freqs.weight, as GGUF has Llama 3's scaling, or made from its keys, as in config.json.
std::vector<float> read_rope_factors(const Keys& keys, const Config& c) {
    if (keys.text("rope.scaling.type", "") == "llama3") return read_llama3(keys, c);
    const FileTensor* tensor = keys.architecture.rope_factors ? keys.file.find_tensor("rope_freqs.weight") : nullptr;
    if (!tensor) return {};
    const std::string path = utf8_text(keys.file.path());
    const uint64_t pairs = c.head_dim / 2;
    if (tensor->type != GgmlType::F32 || tensor->ne != std::array<uint64_t, 4>{pairs, 1, 1, 1})
        fail("{}: tensor '{}' is not {} numbers in F32, one for each pair of a head", path, tensor->name, pairs);
    std::vector<float> factors(pairs);
    std::memcpy(factors.data(), tensor->data.data(), tensor->data.size());
    for (const float factor : factors)
        if (!(factor >= 1e-3f && factor <= 1e6f)) // also when it is NaN
            fail("{}: tensor '{}' has the value {}; RoPE's frequencies are divided by 0.001 to a million", path, tensor->name,
                 factor);
    return factors;
}

// Refuses what some files of these architectures have, and this program would leave out.
void refuse_features(const Keys& keys) {
    if (!keys.architecture.experts && keys.integer("expert_count", 0) != 0)
        fail("{} is {}: it is a mixture of experts, and tq-run runs dense models of '{}' only", keys.label("expert_count"),
             keys.integer("expert_count", 0), keys.architecture.name);
    if (!keys.file.boolean(keys.architecture.key("attention.causal"), true))
        fail("{} is false; tq-run runs causal attention only", keys.label("attention.causal"));
}

// Reads the sizes of a feed-forward.
void read_feed_forward(const Keys& keys, Config& c) {
    if (!keys.architecture.experts) {
        c.intermediate_size = keys.size("feed_forward_length", max_size, 32);
        return;
    }
    c.num_experts = keys.size("expert_count", max_experts);
    c.num_experts_per_tok = keys.size("expert_used_count", std::min(c.num_experts, max_experts_per_tok));
    const char* const length = "expert_feed_forward_length"; // if absent, as in llama.cpp:
    c.moe_intermediate_size =
        keys.has(length) ? keys.size(length, max_size / max_experts_per_tok, 32)
                         : keys.size("feed_forward_length", max_size, 32 * c.num_experts_per_tok) / c.num_experts_per_tok;
    c.intermediate_size = c.num_experts_per_tok * c.moe_intermediate_size;
    c.norm_topk_prob = keys.file.boolean(keys.architecture.key("expert_weights_norm"), true);
    if (!keys.architecture.hybrid) return;
    const char* const shared = "expert_shared_feed_forward_length";
    const FileTensor* gate = keys.file.find_tensor("blk.0.ffn_gate_shexp.weight"); // if the key is absent
    c.shared_expert_intermediate_size =
        keys.has(shared) || !gate || gate->ne[1] > max_size ? keys.size(shared, max_size, 32) : uint32_t(gate->ne[1]);
}

// Returns which layers of a hybrid are recurrent: as a list tells, or all but each interval-th.
std::vector<bool> read_recurrent_layers(const Keys& keys, uint32_t layers) {
    const char* const list = "attention.recurrent_layers";
    std::vector<bool> out(layers);
    if (keys.has(list)) {
        const std::vector<uint64_t> values = keys.file.integers(keys.architecture.key(list));
        if (values.size() < layers) fail("{} has {} values for {} layers", keys.label(list), values.size(), layers);
        for (uint32_t layer = 0; layer < layers; layer++) out[layer] = values[layer] != 0;
    } else {
        const char* const key = "full_attention_interval";
        const uint32_t interval = keys.has(key) ? keys.size(key, max_layers) : 4;
        for (uint32_t layer = 0; layer < layers; layer++) out[layer] = (layer + 1) % interval != 0;
    }
    if (std::ranges::count(out, true) == std::ptrdiff_t(layers))
        fail("{}: none of its {} layers has attention; tq-run runs hybrids with at least one such layer",
             utf8_text(keys.file.path()), layers);
    return out;
}

// Reads what only hybrids have. Their last layers may be for multi-token prediction.
void read_hybrid(const Keys& keys, Config& c) {
    const auto exactly = [&](const char* key, uint32_t value) {
        if (const uint32_t given = keys.size(key, max_size); given != value)
            fail("{} is {}; tq-run runs {}", keys.label(key), given, value);
        return value;
    };
    c.gated_attention = true;
    c.recurrent_layers = read_recurrent_layers(keys, c.num_hidden_layers);
    if (c.attention_layers() == c.num_hidden_layers) return;
    Recurrent r{.key_heads = keys.size("ssm.group_count", max_heads),
                .value_heads = keys.size("ssm.time_step_rank", max_heads),
                .head_dim = exactly("ssm.state_size", recurrent_head_dim),
                .conv_kernel = exactly("ssm.conv_kernel", recurrent_kernel),
                .tiled_heads = keys.file.boolean(keys.architecture.key("ssm.v_head_reordered"), keys.architecture.tiled_heads)};
    if (r.value_heads % r.key_heads != 0)
        fail("{} is {}, not a multiple of the {} key heads", keys.label("ssm.time_step_rank"), r.value_heads, r.key_heads);
    exactly("ssm.inner_size", r.value_size());
    c.recurrent = r;
}

// Reads the number of layers, without those for multi-token prediction.
void read_layers(const Keys& keys, Config& c) {
    c.num_hidden_layers = keys.size("block_count", max_layers);
    if (!keys.architecture.hybrid) return;
    const char* const key = "nextn_predict_layers";
    const uint64_t more = keys.integer(key, 0);
    if (more >= c.num_hidden_layers) fail("{} is {} of {} layers in all", keys.label(key), more, c.num_hidden_layers);
    c.nextn_predict_layers = uint32_t(more);
    c.num_hidden_layers -= c.nextn_predict_layers;
    if (more != 0 && !keys.file.tensors().empty() && !keys.file.find_tensor("blk.0.attn_norm.weight"))
        fail("{}: it holds the layers for multi-token prediction alone; choose the file of the model itself",
             utf8_text(keys.file.path()));
}

void want_mtp(const Keys& keys, Config& c) {
    const std::string path = utf8_text(keys.file.path());
    if (c.nextn_predict_layers == 0)
        fail("{}: it has no head for multi-token prediction: choose a file that was made with it, or other drafts", path);
    if (c.nextn_predict_layers != 1)
        fail("{} is {}; tq-run runs one head for multi-token prediction", keys.label("nextn_predict_layers"),
             c.nextn_predict_layers);
    c.mtp = true;
}

constexpr std::array rope_scaling_names{"none", "linear", "yarn"}; // by RopeScalingType

} // namespace

uint32_t Config::attention_layers() const {
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < num_hidden_layers; layer++) count += !is_recurrent(layer);
    return count;
}

uint64_t Config::state_bytes() const {
    return (recurrent ? (num_hidden_layers - attention_layers()) * recurrent->state_bytes() : 0) + (mtp ? 4ull * hidden_size : 0);
}

uint64_t Config::pending_bytes(uint32_t pending) const {
    const uint64_t of_layer = recurrent ? 4 * pending_ring(pending) * recurrent->pending_floats() : 0;
    return (num_hidden_layers - attention_layers()) * of_layer + (mtp ? 4ull * hidden_ring(pending) * hidden_size : 0);
}

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

Config read_config(const ModelFile& file, bool mtp) {
    const Keys keys(file);
    refuse_features(keys);
    Config c{};
    c.architecture = &keys.architecture;
    c.vocab_size = read_vocab_size(file);
    c.hidden_size = keys.size("embedding_length", max_size, 32);
    read_feed_forward(keys, c);
    read_layers(keys, c);
    if (mtp) want_mtp(keys, c);
    read_heads(keys, c);
    if (keys.architecture.hybrid) read_hybrid(keys, c);
    c.max_position_embeddings = keys.size("context_length", max_positions);
    c.rope_theta =
        keys.architecture.complete || keys.has("rope.freq_base") ? keys.real_between("rope.freq_base", 1, 1e12) : 10000;
    c.rope_scaling = read_rope_scaling(keys, c.max_position_embeddings, c.rope_theta);
    c.rope_factors = read_rope_factors(keys, c);
    c.max_position_embeddings = std::min(std::max(c.max_position_embeddings, stretched_positions(c.rope_scaling)), max_context);
    c.rms_norm_eps = keys.real_between("attention.layer_norm_rms_epsilon", 1e-20, 1);
    return c;
}

} // namespace tq
