// Quantised matrices are random blocks, not encoded floats: every level and scale occurs, and 600 MB take seconds.
#include "tests/support/random_model.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/half.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/forward.h"
#include "model/weights/synthetic/synthetic.h"
#include "model/weights/synthetic/synthetic_rows.h"
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

namespace tq::test {
namespace {

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}

    uint64_t bits() { return engine_(); }
    int below(int n) { return int((bits() >> 32) * uint64_t(n) >> 32); }
    // Standard deviation 1, mean 0, bell-shaped: the sum of four uniform numbers.
    float normal() {
        const uint64_t b = bits();
        const auto sum = int((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48)) - 2 * 0xffff;
        return float(sum) * float(1.7320508 / 65536);
    }
    void bytes(char* p, size_t n) {
        for (size_t i = 0; i < n; i += 8) {
            const uint64_t b = bits();
            std::memcpy(p + i, &b, std::min<size_t>(8, n - i));
        }
    }

  private:
    std::mt19937_64 engine_;
};

void put_half(char* p, float value) {
    const uint16_t h = float_to_half(value);
    std::memcpy(p, &h, 2);
}

// Scales and minima of Q4_K and Q5_K: 6 bits each, 8 of both in 12 bytes. The minimum is near the scale.
void put_scales(char* p, Random& random) {
    std::array<int, 8> scale, min;
    for (int j = 0; j < 8; ++j) {
        scale[j] = 32 + random.below(32);
        min[j] = std::min(63, scale[j] - 4 + random.below(9));
    }
    for (int j = 0; j < 4; ++j) {
        p[j] = char(scale[j] | (scale[j + 4] >> 4) << 6);
        p[4 + j] = char(min[j] | (min[j + 4] >> 4) << 6);
        p[8 + j] = char((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

// MXFP4's scales are powers of two: one of the two around `scale`, so that the mean of the squares is correct.
char mxfp4_exponent(float scale, Random& random) {
    const int below = int(std::floor(std::log2(scale)));
    const float ratio = scale / std::exp2(float(below)), lower = (4 - ratio * ratio) / 3;
    return char(128 + below + (float(random.below(1024)) < 1024 * lower ? 0 : 1));
}

// Returns block_deviation(type), which takes long to find out.
float deviation_of(GgmlType type) {
    thread_local std::map<GgmlType, float> all;
    const auto [at, is_new] = all.try_emplace(type);
    if (is_new) at->second = float(block_deviation(type));
    return at->second;
}

// Fills a block with random levels; its scale makes the elements' standard deviation `deviation`, within a factor of 1.5 or 2.
void put_block(GgmlType type, char* p, float deviation, Random& random) {
    random.bytes(p, block_format(type)->bytes);
    const float sign = random.below(2) ? 1.0f : -1.0f; // a symmetric mean for formats whose levels are not symmetric
    const float d = sign * deviation * (0.75f + float(random.below(1024)) / 2048);
    switch (type) { // the divisors are the standard deviation of the levels times the mean scale
    case GgmlType::Q8_0: return put_half(p, d / 73.9f);
    case GgmlType::Q4_0: return put_half(p, d / 4.61f);
    case GgmlType::Q4_1: return put_half(p, d / 4.61f), put_half(p + 2, d / 4.61f * -7.5f);
    case GgmlType::Q5_0: return put_half(p, d / 9.23f);
    case GgmlType::Q5_1: return put_half(p, d / 9.23f), put_half(p + 2, d / 9.23f * -15.5f);
    case GgmlType::IQ4_NL: return put_half(p, d / 67.4f);
    case GgmlType::IQ4_XS: return put_half(p, d / (67.4f * 18.5f));
    case GgmlType::MXFP4: *p = mxfp4_exponent(deviation / 5.85f, random); return;
    case GgmlType::NVFP4: // scales of 1 / 2 to 15 / 16; the matrix's factor does the rest
        for (int i = 0; i < 4; ++i) p[i] = char(0x38 + random.below(8));
        return;
    case GgmlType::Q2_K: // a minimum like each scale, 8 to 15
        for (int i = 0; i < 16; ++i) p[i] = char((8 + random.below(8)) * 17);
        return put_half(p + 80, d / (1.12f * 11.7f)), put_half(p + 82, d / (1.12f * 11.7f) * 1.5f);
    case GgmlType::Q3_K: return put_half(p + 108, d / (2.35f * 18.5f));
    case GgmlType::Q4_K:
        put_half(p, d / (4.61f * 47.5f));
        put_half(p + 2, d / (4.61f * 47.5f) * 7.5f);
        return put_scales(p + 4, random);
    case GgmlType::Q5_K:
        put_half(p, d / (9.23f * 47.5f));
        put_half(p + 2, d / (9.23f * 47.5f) * 15.5f);
        return put_scales(p + 4, random);
    case GgmlType::Q6_K: {
        for (int i = 0; i < 16; ++i) p[192 + i] = char((48 + random.below(32)) * (random.below(2) ? 1 : -1));
        return put_half(p + 208, d / (18.5f * 63.5f));
    }
    default: return set_block_scales(*block_format(type), reinterpret_cast<std::byte*>(p), float_to_half(d / deviation_of(type)));
    }
}

void put_number(GgmlType type, char* p, float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (type == GgmlType::F16) return put_half(p, value);
    if (type == GgmlType::F32) return void(std::memcpy(p, &bits, 4));
    const auto rounded = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(p, &rounded, 2);
}

struct Shape {
    std::string name;
    GgmlType type;
    uint32_t rows, cols, matrices = 1; // of a stack, each of these rows
    float factor = 1;                  // of "NAME.scale": the mean of its numbers

    uint64_t bytes() const { return row_bytes(type, cols) * rows * matrices; }
    bool in_layer() const { return name.starts_with("blk."); }
    bool is_router() const { return name.ends_with("ffn_gate_inp.weight"); }
    bool is_convolution() const { return name.ends_with("ssm_conv1d.weight"); }
    // The mean of a vector's values. Rates of decay are below 0, and gates, as biases, near 0.
    float mean() const {
        if (name.ends_with(".ssm_a")) return -0.5f;
        return name.ends_with(".bias") || name.ends_with("_shexp.weight") ? 0 : factor;
    }
    float spread() const { return name.ends_with(".bias") ? 0.5f : 0.1f * factor; }
};

std::vector<Shape> tensors(const RandomModel& model) {
    const Config& c = model.config;
    std::vector<Shape> all;
    const auto matrix = [&](std::string name, uint32_t rows, uint32_t cols, uint32_t matrices = 1) {
        const bool embedding = name == "token_embd.weight"; // which no file has in a format with factors
        const bool fits = cols % block_format(model.type)->elements == 0 && !(embedding && block_format(model.type)->has_factor);
        all.push_back({std::move(name), fits ? model.type : GgmlType::Q8_0, rows, cols, matrices});
        if (!fits || !block_format(model.type)->has_factor) return;
        const std::string stem = all.back().name.substr(0, all.back().name.size() - std::string_view("weight").size());
        constexpr float deviation = 5.85f * 0.74f; // of put_block(): of the levels, by the scales' root mean square
        all.push_back({stem + "scale", GgmlType::F32, 1, matrices, 1, 1 / std::sqrt(float(cols)) / deviation});
        all.push_back({stem + "input_scale", GgmlType::F32, 1, matrices});
    };
    const auto norm = [&](std::string name, uint32_t cols) { all.push_back({std::move(name), GgmlType::F32, 1, cols}); };
    const auto attention = [&](const std::string& blk) {
        matrix(blk + "attn_q.weight", c.q_rows(), c.hidden_size);
        matrix(blk + "attn_k.weight", c.num_key_value_heads * c.head_dim, c.hidden_size);
        matrix(blk + "attn_v.weight", c.num_key_value_heads * c.head_dim, c.hidden_size);
        if (c.architecture->qk_norm)
            for (const char* name : {"attn_q_norm.weight", "attn_k_norm.weight"}) norm(blk + name, c.head_dim);
        if (c.architecture->qkv_bias) {
            norm(blk + "attn_q.bias", c.num_attention_heads * c.head_dim);
            for (const char* name : {"attn_k.bias", "attn_v.bias"}) norm(blk + name, c.num_key_value_heads * c.head_dim);
        }
        matrix(blk + "attn_output.weight", c.hidden_size, c.num_attention_heads * c.head_dim);
    };
    const auto recurrent = [&](const std::string& blk) {
        const Recurrent& r = *c.recurrent;
        matrix(blk + "attn_qkv.weight", r.channels(), c.hidden_size);
        matrix(blk + "attn_gate.weight", r.value_size(), c.hidden_size);
        if (r.tiled_heads)
            for (const char* name : {"ssm_beta.weight", "ssm_alpha.weight"}) matrix(blk + name, r.value_heads, c.hidden_size);
        else
            matrix(blk + "ssm_ba.weight", 2 * r.value_heads, c.hidden_size);
        all.push_back({blk + "ssm_conv1d.weight", GgmlType::F32, r.channels(), r.conv_kernel});
        norm(blk + "ssm_a", r.value_heads);
        norm(blk + "ssm_dt.bias", r.value_heads);
        norm(blk + "ssm_norm.weight", r.head_dim);
        matrix(blk + "ssm_out.weight", c.hidden_size, r.value_size());
    };
    const auto feed_forward = [&](const std::string& blk) {
        norm(blk + std::string(c.architecture->ffn_norm) + ".weight", c.hidden_size);
        if (c.shared_expert_intermediate_size != 0) {
            norm(blk + "ffn_gate_inp_shexp.weight", c.hidden_size);
            matrix(blk + "ffn_gate_shexp.weight", c.shared_expert_intermediate_size, c.hidden_size);
            matrix(blk + "ffn_up_shexp.weight", c.shared_expert_intermediate_size, c.hidden_size);
            matrix(blk + "ffn_down_shexp.weight", c.hidden_size, c.shared_expert_intermediate_size);
        }
        if (c.num_experts != 0) {
            all.push_back({blk + "ffn_gate_inp.weight", GgmlType::F32, c.num_experts, c.hidden_size});
            matrix(blk + "ffn_gate_exps.weight", c.moe_intermediate_size, c.hidden_size, c.num_experts);
            matrix(blk + "ffn_up_exps.weight", c.moe_intermediate_size, c.hidden_size, c.num_experts);
            matrix(blk + "ffn_down_exps.weight", c.hidden_size, c.moe_intermediate_size, c.num_experts);
            return;
        }
        matrix(blk + "ffn_gate.weight", c.intermediate_size, c.hidden_size);
        matrix(blk + "ffn_up.weight", c.intermediate_size, c.hidden_size);
        matrix(blk + "ffn_down.weight", c.hidden_size, c.intermediate_size);
    };
    matrix("token_embd.weight", c.vocab_size, c.hidden_size);
    for (uint32_t i = 0; i < c.num_hidden_layers + c.nextn_predict_layers; ++i) {
        const std::string blk = "blk." + std::to_string(i) + '.';
        norm(blk + "attn_norm.weight", c.hidden_size);
        if (i < c.num_hidden_layers && c.is_recurrent(i))
            recurrent(blk);
        else
            attention(blk);
        feed_forward(blk);
        if (i < c.num_hidden_layers) continue;
        for (const char* name : {"nextn.enorm.weight", "nextn.hnorm.weight"}) norm(blk + name, c.hidden_size);
        if (!model.perfect_mtp) norm(blk + "nextn.shared_head_norm.weight", c.hidden_size);
        all.push_back({blk + "nextn.eh_proj.weight", GgmlType::F16, c.hidden_size, 2 * c.hidden_size});
        if (model.wrong != 0) all.push_back({blk + "nextn.embed_tokens.weight", all[0].type, c.vocab_size, c.hidden_size});
    }
    norm("output_norm.weight", c.hidden_size);
    if (!model.tied) matrix("output.weight", c.vocab_size, c.hidden_size);
    return all;
}

void fill(const Shape& t, Random random, std::ostream& out) {
    const BlockFormat& format = *block_format(t.type);
    const float deviation = 1 / std::sqrt(float(t.cols));
    std::string row(row_bytes(t.type, t.cols), '\0');
    for (uint32_t r = 0; r < t.rows * t.matrices; ++r) {
        for (size_t at = 0; at < row.size(); at += format.bytes) {
            if (format.elements > 1) {
                put_block(t.type, row.data() + at, deviation, random);
            } else {
                put_number(t.type, row.data() + at,
                           t.rows == 1 ? t.mean() + t.spread() * random.normal() : deviation * random.normal());
            }
        }
        out.write(row.data(), std::streamsize(row.size()));
    }
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
    return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

// Writes the tensors that differ in a model whose head is right: layers add nothing, and the head passes on the embedding.
void fill_perfect(const RandomModel& model, const Shape& t, Random random, std::ostream& out) {
    const auto numbers = [&](uint32_t rows, const auto& value) {
        std::string row(row_bytes(t.type, t.cols), '\0');
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t i = 0; i < t.cols; i++) put_number(t.type, row.data() + i * block_format(t.type)->bytes, value(r, i));
            out.write(row.data(), std::streamsize(row.size()));
        }
    };
    if (ends_with_any(t.name, {"attn_output.weight", "ssm_out.weight", "ffn_down.weight", "ffn_down_exps.weight",
                               "ffn_down_shexp.weight"})) {
        const std::string zeros(size_t(t.bytes()), '\0'); // of every format
        out.write(zeros.data(), std::streamsize(zeros.size()));
    } else if (t.name == "output.weight" && t.rows > likely_ids) { // its answers are of likely ids
        std::ostringstream all;
        fill(t, random, all);
        std::string rows = all.str();
        const size_t likely = row_bytes(t.type, t.cols) * likely_ids;
        std::fill(rows.begin() + ptrdiff_t(likely), rows.end(), '\0');
        out << rows;
    } else if (t.name.ends_with("nextn.enorm.weight")) {
        numbers(1, [](uint32_t, uint32_t) { return 1.0f; });
    } else if (t.name.ends_with("nextn.eh_proj.weight")) {
        numbers(t.rows, [](uint32_t row, uint32_t column) { return row == column ? 1.0f : 0.0f; });
    } else if (t.name.ends_with("nextn.embed_tokens.weight")) {
        std::ostringstream right, other;
        fill(t, Random(model.seed * 1000003), right); // as the first tensor, token_embd
        fill(t, random, other);
        const std::string all = right.str(), wrong = other.str();
        const size_t bytes = row_bytes(t.type, t.cols);
        for (uint32_t id = 0; id < t.rows; id++)
            out.write(&(id * 2654435761u >> 24 < model.wrong ? wrong : all)[id * bytes], std::streamsize(bytes));
    } else {
        fill(t, random, out);
    }
}

void put_recurrent(GgufWriter& writer, const Config& c) {
    const auto size = [&](const char* key, uint64_t value) { writer.set(c.architecture->key(key), value); };
    if (c.rotary_dim != 0) size("rope.dimension_count", c.rotary_dim);
    if (c.shared_expert_intermediate_size != 0) size("expert_shared_feed_forward_length", c.shared_expert_intermediate_size);
    if (!c.recurrent) return;
    size("ssm.group_count", c.recurrent->key_heads);
    size("ssm.time_step_rank", c.recurrent->value_heads);
    size("ssm.state_size", c.recurrent->head_dim);
    size("ssm.inner_size", c.recurrent->value_size());
    size("ssm.conv_kernel", c.recurrent->conv_kernel);
    constexpr uint32_t list = 9, truth = 7;
    std::string layers = raw(truth) + raw(uint64_t(c.num_hidden_layers));
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) layers += raw(uint8_t(c.is_recurrent(layer)));
    writer.set_raw(c.architecture->key("attention.recurrent_layers"), list, layers);
    // Sections of positions in pictures: text has the same position in each, but other programs ask for the key.
    if (c.architecture->tiled_heads)
        writer.set(c.architecture->key("rope.dimension_sections"), std::vector<uint64_t>{11, 11, 10, 0});
}

void put_config(GgufWriter& writer, const Config& c) {
    const auto size = [&](const char* key, uint64_t value) { writer.set(c.architecture->key(key), value); };
    writer.set("general.architecture", c.architecture->name);
    writer.set("general.name", "random weights");
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
    put_recurrent(writer, c);
    writer.set(c.architecture->key("rope.freq_base"), double(c.rope_theta));
    writer.set(c.architecture->key("attention.layer_norm_rms_epsilon"), double(c.rms_norm_eps));
}

void copy_vocabulary(GgufWriter& writer, const RandomModel& model) {
    const ModelFile from = read_gguf(model.vocabulary);
    const size_t tokens = from.strings("tokenizer.ggml.tokens").size();
    if (tokens > model.config.vocab_size) {
        fail("{} has {} tokens, more than the {} rows of the model's embedding", model.vocabulary.string(), tokens,
             model.config.vocab_size);
    }
    for (const auto& [key, value] : from.metadata()) {
        if (key.starts_with("tokenizer.")) writer.set(key, value);
    }
}

} // namespace

Config small_config(const Architecture& architecture) {
    Config c{.vocab_size = 320,
             .hidden_size = 64,
             .intermediate_size = 96,
             .num_hidden_layers = 2,
             .num_attention_heads = 4,
             .num_key_value_heads = 2,
             .head_dim = 128,
             .max_position_embeddings = 4096,
             .rope_theta = 1e6f,
             .rms_norm_eps = 1e-6f};
    c.architecture = &architecture;
    if (architecture.experts) {
        c.num_experts = 6;
        c.num_experts_per_tok = 3;
        c.moe_intermediate_size = c.intermediate_size / 3;
    }
    if (!architecture.hybrid) return c;
    c.num_hidden_layers = 3;
    c.head_dim = 256;
    c.rotary_dim = 64;
    c.gated_attention = true;
    c.shared_expert_intermediate_size = architecture.experts ? 32 : 0;
    c.recurrent_layers = {true, false, true};
    c.recurrent = {.key_heads = 2, .value_heads = 4, .head_dim = 128, .conv_kernel = 4, .tiled_heads = architecture.tiled_heads};
    return c;
}

void write_random_model(const std::filesystem::path& path, const RandomModel& model) {
    ENSURE(block_format(model.type), "{}", type_name(model.type));
    GgufWriter writer;
    put_config(writer, model.config);
    if (model.vocabulary.empty()) {
        ModelFile vocabulary("synthetic");
        put_synthetic_vocabulary(vocabulary, model.config.vocab_size);
        for (const auto& [key, value] : vocabulary.metadata()) writer.set(key, value);
    } else {
        copy_vocabulary(writer, model);
    }
    const std::vector<Shape> shapes = tensors(model);
    for (const Shape& t : shapes) {
        std::vector<uint64_t> ne{t.cols};
        if (t.rows > 1) ne.push_back(t.rows);
        if (t.matrices > 1) ne.push_back(t.matrices);
        writer.add_tensor(t.name, t.type, ne);
    }
    std::ofstream out(path, std::ios::binary);
    if (!out) fail("cannot create {}", path.string());
    writer.write(out, [&](size_t i, std::ostream& o) {
        const Shape& t = shapes[i];
        if (model.sparse && t.rows > 1 && t.in_layer() && !t.is_router() && !t.is_convolution())
            o.seekp(std::streamoff(t.bytes()), std::ios::cur);
        else if (model.perfect_mtp)
            fill_perfect(model, t, Random(model.seed * 1000003 + i), o);
        else
            fill(t, Random(model.seed * 1000003 + i), o);
    });
    if (!out.flush()) fail("cannot write {}: is the disk full?", path.string());
}

} // namespace tq::test
