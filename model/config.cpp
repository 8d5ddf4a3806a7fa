#include "model/config.h"
#include "base/error.h"
#include "base/printable.h"

namespace tq {
namespace {

// Far above any Qwen3, low enough that products of two sizes stay far from overflow.
constexpr uint64_t max_size = 1u << 20, max_layers = 1024, max_heads = 1024, max_vocab = 1u << 24, max_positions = 1u << 30;

uint32_t read_size(const ModelFile& file, std::string_view key, uint64_t most, uint64_t multiple = 1) {
    const uint64_t value = file.integer(key);
    if (value == 0 || value > most || value % multiple != 0) {
        fail("{}: key '{}' is {}; we can run {} to {}, in steps of {}", file.path().string(), key, value, multiple, most,
             multiple);
    }
    return uint32_t(value);
}

float read_real(const ModelFile& file, std::string_view key, double least, double most) {
    const double value = file.real(key);
    if (!(value >= least && value <= most)) { // also when it is NaN
        fail("{}: key '{}' is {}; we can run {} to {}", file.path().string(), key, value, least, most);
    }
    return float(value);
}

// The rows of the embedding; padding rows beyond the vocabulary are usual. A vocabulary-only file has just the vocabulary.
uint32_t read_vocab_size(const ModelFile& file) {
    const auto* tokens = file.find("tokenizer.ggml.tokens");
    const uint64_t vocabulary = tokens ? file.strings("tokenizer.ggml.tokens").size() : 0;
    const FileTensor* embedding = file.find_tensor("token_embd.weight");
    const uint64_t rows = embedding ? embedding->ne[1] : vocabulary;
    if (rows == 0) fail("{}: it has neither a tensor 'token_embd.weight' nor a vocabulary", file.path().string());
    if (rows > max_vocab) fail("{}: a vocabulary of {}, more than the {} we can run", file.path().string(), rows, max_vocab);
    if (rows < vocabulary) {
        fail("{}: 'token_embd.weight' has {} rows for a vocabulary of {}", file.path().string(), rows, vocabulary);
    }
    return uint32_t(rows);
}

void check_heads(const ModelFile& file, const Config& c) {
    const std::string path = file.path().string();
    if (c.head_dim != 64 && c.head_dim != 128 && c.head_dim != 256) {
        fail("{}: key 'qwen3.attention.key_length' is {}; we can run 64, 128 and 256", path, c.head_dim);
    }
    for (const auto* key : {"qwen3.attention.value_length", "qwen3.rope.dimension_count"}) {
        const uint64_t value = file.integer(key, c.head_dim);
        if (value != c.head_dim) fail("{}: key '{}' is {}, but the head dimension is {}", path, key, value, c.head_dim);
    }
    if (c.num_attention_heads % c.num_key_value_heads != 0 || c.num_attention_heads / c.num_key_value_heads > 8) {
        fail("{}: {} query heads on {} key/value heads; we can run 1 to 8 whole query heads per key/value head", path,
             c.num_attention_heads, c.num_key_value_heads);
    }
}

void check_rope_scaling(const ModelFile& file) {
    const std::string_view type = file.text("qwen3.rope.scaling.type", "none");
    if (type != "none") {
        fail("{}: key 'qwen3.rope.scaling.type' is '{}'; we can run unscaled RoPE only", file.path().string(), printable(type));
    }
}

} // namespace

Config read_config(const ModelFile& file) {
    const std::string_view architecture = file.text("general.architecture");
    if (architecture != "qwen3") {
        fail("{}: a model of architecture '{}'; we can run 'qwen3' only", file.path().string(), printable(architecture));
    }
    check_rope_scaling(file);
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
    c.rms_norm_eps = read_real(file, "qwen3.attention.layer_norm_rms_epsilon", 1e-20, 1);
    check_heads(file, c);
    return c;
}

} // namespace tq
