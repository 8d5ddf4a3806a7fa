// Finds a model's tensors by GGUF's names, checks their types and shapes against the Config, and puts them together as Weights.
// Every tensor of the file must be used (expect_empty()): one that is left over changes the computation in a way that this
// program does not know, such as biases or factors of frequencies, and the model would answer, only worse.
// The same functions (collect_*) build a synthetic model, through the interface TensorSource.
// After that the forms that kernels do not have are replaced by views: heads of q and k in neighbours become halves, TQ1_0
// becomes TQ2_0, Q1_0 becomes Q2_0.
#include "model/weights/weights.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/weights/hybrid_weights.h"
#include "model/weights/mixes.h"
#include "model/weights/paired_rows.h"
#include "model/weights/quantised_rows.h"
#include "model/weights/stacked_rows.h"
#include <cmath>
#include <fmt/ranges.h>
#include <limits>

namespace tq {
namespace {

// Returns tensors by name and records which were taken, so that a tensor of another architecture is detected.
class FileSource final : public TensorSource {
  public:
    FileSource(const ModelFile& file, const Config& c)
        : path_(utf8_text(file.path())), pytorch_(c.architecture->hybrid && file.rope_is_split()) {
        for (const FileTensor& t : file.tensors()) left_.emplace(t.name, &t);
        if (c.architecture->rope_factors) left_.erase("rope_freqs.weight"); // which is in the Config
        if (c.architecture->hybrid) std::erase_if(left_, [&](const auto& t) { return is_beside_trunk(t.first, c); });
    }

    bool has(const std::string& name) const override { return left_.contains(name); }

    Tensor matrix(const std::string& name, uint32_t rows, uint32_t cols) override {
        const FileTensor& t = take(name);
        check_shape(t, {cols, rows, 1, 1});
        return matrix_of(t, rows, cols, 1);
    }

    Tensor experts(const std::string& name, uint32_t count, uint32_t rows, uint32_t cols) override {
        if (const std::string stack = name + "_exps.weight"; has(stack) || !has(name + ".0.weight")) {
            const FileTensor& t = take(stack);
            check_shape(t, {cols, rows, count, 1});
            return matrix_of(t, count * rows, cols, count);
        }
        std::vector<Tensor> all;
        for (uint32_t i = 0; i < count; i++) {
            all.push_back(matrix(fmt::format("{}.{}.weight", name, i), rows, cols));
            if (all[i].type != all[0].type)
                fail("{}: tensors '{}' and '{}' have the weight formats {} and {}; all experts of a layer have one", path_,
                     all[0].name, all[i].name, type_name(all[0].type), type_name(all[i].type));
        }
        return stacked(name + "_exps.weight", all);
    }

    Tensor vector(const std::string& name, uint32_t cols) override {
        const FileTensor& t = take(name);
        check_plain(t);
        check_shape(t, {cols, 1, 1, 1});
        Tensor vector{.name = name, .type = t.type, .rows = 1, .cols = cols, .data = t.data};
        return pytorch_ ? from_pytorch(std::move(vector)) : vector;
    }

    Tensor table(const std::string& name, uint32_t rows, uint32_t cols) override {
        const FileTensor& t = take(name);
        check_plain(t);
        check_shape(t, {cols, rows, 1, 1});
        return {.name = name, .type = t.type, .rows = 1, .cols = rows * cols, .data = t.data};
    }

    void expect_empty(const Config& c) const {
        if (left_.empty()) return;
        const std::string_view name = left_.begin()->first, architecture = c.architecture->name;
        if (name.starts_with("rope_f"))
            fail("{}: tensor '{}' changes RoPE's frequencies, which tq-run does not support in models of '{}': the model would "
                 "answer wrongly",
                 path_, printable(name), architecture);
        if (name.ends_with(".bias"))
            fail("{}: tensor '{}' is a bias, which tq-run does not add in models of '{}': it would answer wrongly", path_,
                 printable(name), architecture);
        fail("{}: tensor '{}' does not belong to a model of '{}' with {} layers", path_, printable(name), architecture,
             c.num_hidden_layers);
    }

  private:
    const FileTensor& take(const std::string& name) {
        const auto found = left_.find(name);
        if (found == left_.end()) fail("{}: tensor '{}' is missing", path_, name);
        const FileTensor& t = *found->second;
        left_.erase(found);
        return t;
    }

    // Tensors of a head for multi-token prediction that is not wanted, and of encoders of images that some writers put into the
    // same file.
    static bool is_beside_trunk(std::string_view name, const Config& c) {
        for (const char* prefix : {"v.", "mm.", "mtp."})
            if (name.starts_with(prefix)) return true;
        for (uint32_t i = 0; !c.mtp && i < c.nextn_predict_layers; i++)
            if (name.starts_with(fmt::format("blk.{}.", c.num_hidden_layers + i))) return true;
        return false;
    }

    void check_plain(const FileTensor& t) const {
        if (t.type != GgmlType::F32 && t.type != GgmlType::F16 && t.type != GgmlType::BF16)
            fail("{}: tensor '{}' has weight format {}; norms and biases are F32, F16 or BF16", path_, t.name, type_name(t.type));
    }

    void check_shape(const FileTensor& t, const std::array<uint64_t, 4>& ne) const {
        if (t.ne != ne)
            fail("{}: tensor '{}' has shape [{}], not [{}]", path_, t.name, fmt::join(t.ne, ", "), fmt::join(ne, ", "));
    }

    // matrices: of the stack that the tensor is.
    Tensor matrix_of(const FileTensor& t, uint32_t rows, uint32_t cols, uint32_t matrices) {
        if (!block_format(t.type)) {
            std::string known;
            for (const GgmlType type : weight_formats) known += type_name(type) + ", ";
            fail("{}: tensor '{}' has weight format {}, which is not supported; convert the model to one of {}TQ1_0 or Q1_0",
                 path_, t.name, type_name(t.type), known);
        }
        return {.name = t.name,
                .type = t.type,
                .rows = rows,
                .cols = cols,
                .data = t.data,
                .source = nullptr,
                .factors = factors_of(t, matrices)};
    }

    // Returns the numbers beside a matrix in NVFP4: "blk.3.ffn_up.scale" of "blk.3.ffn_up.weight". The scale for quantising its
    // inputs, input_scale, is ignored.
    std::vector<float> factors_of(const FileTensor& t, uint32_t matrices) {
        if (!block_format(t.type)->has_factor || !t.name.ends_with(".weight")) return {};
        const std::string stem = t.name.substr(0, t.name.size() - std::string_view("weight").size());
        left_.erase(stem + "input_scale");
        if (!has(stem + "scale")) return {};
        std::vector<float> factors = to_floats(vector(stem + "scale", matrices));
        constexpr float max_weight = 12 * 240, max = std::numeric_limits<float>::max() / max_weight;
        for (const float f : factors)
            if (!(std::fabs(f) <= max))
                fail("{}: tensor '{}scale' has the value {}, with which weights are NaN or infinite: the file is damaged, "
                     "download it again",
                     path_, printable(stem), f);
        return factors;
    }

    std::string path_;
    bool pytorch_; // vectors are as PyTorch has them
    std::map<std::string_view, const FileTensor*> left_;
};

// q, k and v of a layer. Some files have them in one: the rows of attn_qkv.weight, and of its bias, one after the other.
// A part of a packed matrix is a slice of its rows, of a packed bias a part of its bytes. Biases are plain numbers, so that is
// possible. A file may have some of the biases, or none, as in llama.cpp.
class Projections {
  public:
    Projections(TensorSource& in, const Config& c, const std::string& blk)
        : in_(in), blk_(blk), cols_(c.hidden_size), q_(c.q_rows()), kv_(c.num_key_value_heads * c.head_dim),
          bias_(c.architecture->qkv_bias) {
        const std::string name = blk + "attn_qkv";
        if (!in.has(name + ".weight")) return;
        all_ = in.matrix(name + ".weight", q_ + 2 * kv_, cols_);
        if (bias_ && in.has(name + ".bias")) all_bias_ = in.vector(name + ".bias", q_ + 2 * kv_);
    }

    Tensor weight(char of) const {
        const std::string name = fmt::format("{}attn_{}.weight", blk_, of);
        if (!all_) return in_.matrix(name, rows(of), cols_);
        Tensor part = all_->slice(first(of), rows(of));
        part.name = name;
        return part;
    }
    std::optional<Tensor> bias(char of) const {
        const std::string name = fmt::format("{}attn_{}.bias", blk_, of);
        if (!bias_ || (!all_bias_ && !in_.has(name))) return std::nullopt;
        if (!all_bias_) return in_.vector(name, rows(of));
        const uint64_t bytes = all_bias_->row_bytes() / all_bias_->cols;
        return Tensor{.name = name,
                      .type = all_bias_->type,
                      .rows = 1,
                      .cols = rows(of),
                      .data = all_bias_->data.subspan(first(of) * bytes, rows(of) * bytes)};
    }

  private:
    uint32_t rows(char of) const { return of == 'q' ? q_ : kv_; }
    uint32_t first(char of) const { return of == 'q' ? 0 : of == 'k' ? q_ : q_ + kv_; }

    TensorSource& in_;
    const std::string& blk_;
    const uint32_t cols_, q_, kv_;
    const bool bias_;
    std::optional<Tensor> all_, all_bias_;
};

void collect_attention(LayerWeights& w, TensorSource& in, const Config& c, const std::string& blk) {
    const Projections projections(in, c, blk);
    const auto norm = [&](const char* name) {
        return c.architecture->qk_norm ? std::optional(in.vector(blk + name, c.head_dim)) : std::nullopt;
    };
    w.attn_q = projections.weight('q');
    w.attn_k = projections.weight('k');
    w.attn_v = projections.weight('v');
    w.attn_output = in.matrix(blk + "attn_output.weight", c.hidden_size, c.num_attention_heads * c.head_dim);
    w.attn_q_norm = norm("attn_q_norm.weight");
    w.attn_k_norm = norm("attn_k_norm.weight");
    w.attn_q_bias = projections.bias('q');
    w.attn_k_bias = projections.bias('k');
    w.attn_v_bias = projections.bias('v');
}

void collect_feed_forward(LayerWeights& w, TensorSource& in, const Config& c, const std::string& blk) {
    const bool mixture = c.num_experts != 0;
    const uint32_t size = mixture ? c.moe_intermediate_size : c.intermediate_size;
    const auto matrix = [&](const char* name, uint32_t rows, uint32_t cols) {
        return mixture ? in.experts(blk + name, c.num_experts, rows, cols) : in.matrix(blk + name + ".weight", rows, cols);
    };
    w.ffn_norm = in.vector(fmt::format("{}{}.weight", blk, c.architecture->ffn_norm), c.hidden_size);
    if (mixture && in.has(blk + "ffn_gate_up_exps.weight")) {
        GateUpExperts both = collect_gate_up_experts(in, c, blk);
        w.ffn_gate = std::move(both.gate);
        w.ffn_up = std::move(both.up);
    } else {
        w.ffn_gate = matrix("ffn_gate", size, c.hidden_size);
        w.ffn_up = matrix("ffn_up", size, c.hidden_size);
    }
    w.ffn_down = matrix("ffn_down", c.hidden_size, size);
    if (mixture) w.ffn_gate_inp = in_f32(in.matrix(blk + "ffn_gate_inp.weight", c.num_experts, c.hidden_size));
    if (c.shared_expert_intermediate_size != 0) w.shared_expert = collect_shared_expert(in, c, blk);
}

LayerWeights collect_layer(TensorSource& in, const Config& c, uint32_t layer) {
    const std::string blk = "blk." + std::to_string(layer) + '.';
    LayerWeights w{};
    w.attn_norm = in.vector(blk + "attn_norm.weight", c.hidden_size);
    if (c.is_recurrent(layer))
        w.recurrent = collect_recurrent(in, c, blk);
    else
        collect_attention(w, in, c, blk);
    collect_feed_forward(w, in, c, blk);
    return w;
}

MtpWeights collect_mtp(TensorSource& in, const Config& c) {
    const std::string blk = fmt::format("blk.{}.nextn.", c.num_hidden_layers);
    const auto matrix = [&](const char* name) {
        return in.has(blk + name) ? std::optional(in.matrix(blk + name, c.vocab_size, c.hidden_size)) : std::nullopt;
    };
    MtpWeights w{};
    w.enorm = in.vector(blk + "enorm.weight", c.hidden_size);
    w.hnorm = in.vector(blk + "hnorm.weight", c.hidden_size);
    w.eh_proj = in.matrix(blk + "eh_proj.weight", c.hidden_size, 2 * c.hidden_size);
    w.layer = collect_layer(in, c, c.num_hidden_layers);
    if (in.has(blk + "shared_head_norm.weight")) w.norm = in.vector(blk + "shared_head_norm.weight", c.hidden_size);
    w.token_embd = matrix("embed_tokens.weight");
    w.output = matrix("shared_head_head.weight");
    const auto mark = [](Tensor& t) { t.of_mtp = true; };
    for_each_tensor_of_mtp(w, mark);
    return w;
}

} // namespace

uint32_t quantise(Weights& weights, GgmlType type) {
    uint32_t count = 0;
    for_each_tensor(weights, [&](Tensor& t) {
        if (t.rows == 1 || needs_all_bits(t.name) || !can_quantise(t)) return; // a norm or bias, or already in fewer bits
        auto file = std::move(t.file);
        t = quantised(t, type);
        t.file = std::move(file);
        ++count;
    });
    if (weights.tied) weights.output = weights.token_embd;
    return count;
}

// Returns the weights that a pass of one token reads, for predictions of speed: one row of the embedding, and the chosen experts
// of each mixture.
Weights read_by_token(Weights w, const Config& c) {
    if (!w.tied) w.token_embd.rows = 1;
    w.mtp.reset();
    if (c.num_experts == 0) return w;
    for (LayerWeights& l : w.layers)
        for (Tensor* t : {&l.ffn_gate, &l.ffn_up, &l.ffn_down}) t->rows = t->rows / c.num_experts * c.num_experts_per_tok;
    return w;
}

// Returns the weights that a device with some halves of layers loads. The rest keeps its entry with no rows, so that indices of
// layers stay. Norms are small and stay everywhere. The embedding goes with the head if it is the head's matrix, and otherwise is
// read on the host.
Weights held_weights(Weights w, const HeldHalves& held) {
    const auto drop = [](Tensor& t) {
        t.rows = 0;
        t.data = {};
        t.source = nullptr;
    };
    if (held.all()) return w;
    w.mtp.reset();
    for (uint32_t i = 0; i < w.layers.size(); i++) {
        LayerWeights& l = w.layers[i];
        if (!held.attention(i))
            for (Tensor* t : {&l.attn_q, &l.attn_k, &l.attn_v, &l.attn_output}) drop(*t);
        if (!held.attention(i) && l.recurrent)
            for_each_tensor_of_recurrence(*l.recurrent, [&](Tensor& t) {
                if (t.rows > 1) drop(t);
            });
        if (held.feed_forward(i)) continue;
        for (Tensor* t : {&l.ffn_gate, &l.ffn_up, &l.ffn_down}) drop(*t);
        if (l.shared_expert)
            for (Tensor* t : {&l.shared_expert->gate, &l.shared_expert->up, &l.shared_expert->down}) drop(*t);
        if (l.ffn_gate_inp) drop(*l.ffn_gate_inp);
    }
    if (!held.head() || !w.tied) drop(w.token_embd);
    if (!held.head()) drop(w.output);
    return w;
}

std::vector<float> head_norm_weights(const std::optional<Tensor>& norm, uint32_t head_dim) {
    return norm ? to_floats(*norm) : std::vector<float>(head_dim, 1.0f);
}

uint64_t Weights::bytes() const {
    uint64_t sum = 0;
    for_each_tensor(*this, [&](const Tensor& t) { sum += t.bytes(); });
    return sum;
}

uint64_t Weights::mapped_bytes() const {
    uint64_t sum = 0;
    for_each_tensor(*this, [&](const Tensor& t) { sum += t.is_mapped() ? t.bytes() : 0; });
    return sum;
}

Weights collect_weights(TensorSource& in, const Config& c) {
    Weights w;
    w.token_embd = in.matrix("token_embd.weight", c.vocab_size, c.hidden_size);
    for (uint32_t i = 0; i < c.num_hidden_layers; ++i) w.layers.push_back(collect_layer(in, c, i));
    w.output_norm = in.vector("output_norm.weight", c.hidden_size);
    w.tied = !in.has("output.weight");
    w.output = w.tied ? w.token_embd : in.matrix("output.weight", c.vocab_size, c.hidden_size);
    if (c.mtp) w.mtp = collect_mtp(in, c);
    if (in.has("cls.output.weight")) w.classifier = in.matrix("cls.output.weight", 2, c.hidden_size);
    return w;
}

Weights read_weights(const ModelFile& file, const Config& c) {
    if (file.tensors().empty()) fail("{}: this file holds a vocabulary only, no weights", utf8_text(file.path()));
    FileSource in(file, c);
    Weights w = collect_weights(in, c);
    in.expect_empty(c);
    if (c.architecture->gguf_pairs == RopePairs::neighbours && !file.rope_is_split())
        for (LayerWeights& l : w.layers)
            for (Tensor* t : {&l.attn_q, &l.attn_k}) *t = rope_split(*t, c.head_dim);
    const auto path = std::make_shared<const std::string>(utf8_text(file.path()));
    for_each_tensor(w, [&](Tensor& t) {
        const GgmlType type = t.type;
        t = in_two_bits(t);
        t.file_type = type;
        t.file = path;
    });
    if (w.tied) w.output = w.token_embd;
    w.files = file.identities();
    return w;
}

} // namespace tq
