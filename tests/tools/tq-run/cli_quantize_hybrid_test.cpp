// tq-run quantize on directories of qwen3_next: each was made here from a GGUF file by the packings of transformers, and
// becomes that file's tensors again.
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/open.h"
#include "tests/support/child_process.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tests/tools/tq-run/quantized.h"
#include <cmath>
#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view weight = ".weight";

std::vector<float> values(const FileTensor& t) {
    const uint64_t rows = t.ne[1] * t.ne[2] * t.ne[3], bytes = row_bytes(t.type, t.ne[0]);
    std::vector<float> out(rows * t.ne[0]);
    for (uint64_t r = 0; r < rows; r++)
        decode_row(t.type, std::span(out).subspan(r * t.ne[0], t.ne[0]), t.data.subspan(r * bytes, bytes));
    return out;
}

std::string bytes_of(std::span<const float> v) { return {reinterpret_cast<const char*>(v.data()), v.size_bytes()}; }

// A directory of a GGUF file's model, in F32.
class Directory {
  public:
    Directory(const ModelFile& file, const Config& c) : file_(file), c_(c), files_(small_huggingface_model()) {
        files_.weights = {};
        add("token_embd.weight", "model.embed_tokens.weight");
        add("output_norm.weight", "model.norm.weight", -1);
        add("output.weight", "lm_head.weight");
        for (uint32_t i = 0; i < c.num_hidden_layers; i++) add_layer(i, fmt::format("model.layers.{}.", i));
        const std::string nextn = fmt::format("blk.{}.nextn.", c.num_hidden_layers);
        add_layer(c.num_hidden_layers, "mtp.layers.0.");
        add(nextn + "eh_proj.weight", "mtp.fc.weight");
        for (const auto& [from, to] :
             {std::pair("enorm", "pre_fc_norm_embedding"), {"hnorm", "pre_fc_norm_hidden"}, {"shared_head_norm", "norm"}})
            add(nextn + from + ".weight", fmt::format("mtp.{}.weight", to), -1);
        add_config();
    }

    HuggingFaceFiles files() const { return files_; }

  private:
    void put(const std::string& name, std::vector<uint64_t> shape, std::span<const float> v) {
        files_.weights.add(name, "F32", shape, bytes_of(v));
    }

    void add(const std::string& from, const std::string& to, float more = 0) {
        const FileTensor& t = *file_.find_tensor(from);
        std::vector<float> v = values(t);
        for (float& x : v) x += more;
        put(to, t.ne[1] == 1 ? std::vector{t.ne[0]} : std::vector{t.ne[1], t.ne[0]}, v);
    }

    void add_layer(uint32_t layer, const std::string& to) {
        const std::string blk = fmt::format("blk.{}.", layer);
        add(blk + "attn_norm.weight", to + "input_layernorm.weight", -1);
        add(blk + "post_attention_norm.weight", to + "post_attention_layernorm.weight", -1);
        if (file_.find_tensor(blk + "attn_q.weight")) {
            for (const auto& [gguf, name] :
                 {std::pair("attn_q", "q_proj"), {"attn_k", "k_proj"}, {"attn_v", "v_proj"}, {"attn_output", "o_proj"}})
                add(blk + gguf + ".weight", fmt::format("{}self_attn.{}.weight", to, name));
            for (const char* name : {"q_norm", "k_norm"})
                add(fmt::format("{}attn_{}.weight", blk, name), fmt::format("{}self_attn.{}.weight", to, name), -1);
        } else {
            add_recurrence(blk, to + "linear_attn.");
        }
        add(blk + "ffn_gate_inp.weight", to + "mlp.gate.weight");
        put(to + "mlp.shared_expert_gate.weight", {1, c_.hidden_size},
            values(*file_.find_tensor(blk + "ffn_gate_inp_shexp.weight")));
        for (const std::string name : {"gate", "up", "down"}) {
            add(fmt::format("{}ffn_{}_shexp.weight", blk, name), fmt::format("{}mlp.shared_expert.{}_proj.weight", to, name));
            const FileTensor& all = *file_.find_tensor(fmt::format("{}ffn_{}_exps.weight", blk, name));
            const std::vector<float> v = values(all);
            for (uint64_t e = 0, size = all.ne[0] * all.ne[1]; e < all.ne[2]; e++)
                put(fmt::format("{}mlp.experts.{}.{}_proj.weight", to, e, name), {all.ne[1], all.ne[0]},
                    std::span(v).subspan(e * size, size));
        }
    }

    void add_recurrence(const std::string& blk, const std::string& to) {
        const Recurrent& r = *c_.recurrent;
        const std::vector<float> qkv = values(*file_.find_tensor(blk + "attn_qkv.weight")),
                                 z = values(*file_.find_tensor(blk + "attn_gate.weight"));
        const size_t key = size_t(r.head_dim) * c_.hidden_size, value = key * r.value_heads / r.key_heads;
        std::vector<float> all; // of each key head its query, its key, the values of its value heads and their gates
        for (uint32_t g = 0; g < r.key_heads; g++) {
            const auto append = [&](const std::vector<float>& from, size_t first, size_t size) {
                all.insert(all.end(), from.begin() + ptrdiff_t(first), from.begin() + ptrdiff_t(first + size));
            };
            append(qkv, g * key, key);
            append(qkv, (r.key_heads + g) * key, key);
            append(qkv, 2 * r.key_heads * key + g * value, value);
            append(z, g * value, value);
        }
        put(to + "in_proj_qkvz.weight", {all.size() / c_.hidden_size, c_.hidden_size}, all);
        add(blk + "ssm_ba.weight", to + "in_proj_ba.weight");
        put(to + "conv1d.weight", {r.channels(), 1, r.conv_kernel}, values(*file_.find_tensor(blk + "ssm_conv1d.weight")));
        std::vector<float> rates = values(*file_.find_tensor(blk + "ssm_a"));
        for (float& x : rates) x = std::log(-x);
        put(to + "A_log", {r.value_heads}, rates);
        add(blk + "ssm_dt.bias", to + "dt_bias");
        add(blk + "ssm_norm.weight", to + "norm.weight");
        add(blk + "ssm_out.weight", to + "out_proj.weight");
    }

    void add_config() {
        json types = json::array();
        for (uint32_t i = 0; i < c_.num_hidden_layers; i++)
            types.push_back(c_.is_recurrent(i) ? "linear_attention" : "full_attention");
        const Recurrent& r = *c_.recurrent;
        files_.documents["config.json"].update({{"architectures", {"Qwen3NextForCausalLM"}},
                                                {"model_type", "qwen3_next"},
                                                {"head_dim", c_.head_dim},
                                                {"hidden_size", c_.hidden_size},
                                                {"intermediate_size", c_.intermediate_size},
                                                {"layer_types", types},
                                                {"linear_conv_kernel_dim", r.conv_kernel},
                                                {"linear_key_head_dim", r.head_dim},
                                                {"linear_num_key_heads", r.key_heads},
                                                {"linear_num_value_heads", r.value_heads},
                                                {"linear_value_head_dim", r.head_dim},
                                                {"moe_intermediate_size", c_.moe_intermediate_size},
                                                {"norm_topk_prob", true},
                                                {"num_attention_heads", c_.num_attention_heads},
                                                {"num_experts", c_.num_experts},
                                                {"num_experts_per_tok", c_.num_experts_per_tok},
                                                {"num_hidden_layers", c_.num_hidden_layers},
                                                {"num_key_value_heads", c_.num_key_value_heads},
                                                {"partial_rotary_factor", 0.25},
                                                {"shared_expert_intermediate_size", c_.shared_expert_intermediate_size},
                                                {"tie_word_embeddings", false},
                                                {"vocab_size", c_.vocab_size}});
    }

    const ModelFile& file_;
    const Config c_;
    HuggingFaceFiles files_;
};

// A small model with a head for multi-token prediction, 3 value heads to each of 2 key heads.
struct Next {
    TemporaryDirectory place;
    Config config = small_config(*find_model_type("qwen3_next"));
    std::string original = path("original.gguf"), out = path("out.gguf");

    Next() {
        config.nextn_predict_layers = 1;
        config.recurrent->value_heads = 6;
        write_random_model(original, {config, GgmlType::F16, false, 1, {}});
    }

    std::string path(const char* name) const { return (place.path() / name).string(); }
    HuggingFaceFiles files() const { return Directory(open_model_file(original), config).files(); }
};

Finished quantize(const HuggingFaceFiles& files, const std::string& out, const char* type) {
    const TemporaryDirectory from;
    files.write(from);
    return tq_run({"quantize", from.path().string(), out, type});
}

// Checks that `made` has the tensors of `expected`, but for their formats.
void check_same_tensors(const ModelFile& made, const ModelFile& expected) {
    CHECK(made.tensors().size() == expected.tensors().size());
    for (const FileTensor& t : expected.tensors()) {
        CAPTURE(t.name);
        const FileTensor* found = made.find_tensor(t.name);
        REQUIRE(found);
        CHECK(found->ne == t.ne);
        const std::vector<float> is = values(*found), wanted = values(t);
        if (!t.name.ends_with("ssm_a")) {
            CHECK(is == wanted);
            continue;
        }
        for (size_t i = 0; i < wanted.size(); i++) // -exp(log(-x))
            CHECK(std::fabs(is[i] - wanted[i]) < 1e-6 * std::fabs(wanted[i]));
    }
}

} // namespace

TEST_CASE("a directory of qwen3_next becomes the GGUF file of the same model, with its head for multi-token prediction") {
    const Next model;
    const TemporaryDirectory from;
    model.files().write(from);
    output(tq_run({"quantize", from.path().string(), model.out, "F32"}));
    CHECK(logits(model.out) == logits(from.path().string()));
    const ModelFile made = open_model_file(model.out), original = open_model_file(model.original);
    check_same_tensors(made, original);
    for (const auto& [key, value] : original.metadata()) {
        if (!key.starts_with("qwen3next.") || key.ends_with("recurrent_layers")) continue;
        CAPTURE(key);
        REQUIRE(made.find(key));
        CHECK(made.real(key) == original.real(key));
    }
    CHECK(made.integers("qwen3next.attention.recurrent_layers") == std::vector<uint64_t>{1, 0, 1, 0});
}

TEST_CASE("a mix has the same formats, made of a directory of qwen3_next and of its GGUF file") {
    const Next model;
    const HuggingFaceFiles files = model.files();
    output(quantize(files, model.out, "F32"));
    for (const char* type : {"Q4_K_M", "Q5_K_S"}) {
        const std::string one = model.path("one.gguf"), two = model.path("two.gguf");
        output(quantize(files, one, type));
        output(tq_run({"quantize", model.out, two, type}));
        const ModelFile first = open_model_file(one), second = open_model_file(two);
        for (const FileTensor& t : second.tensors()) {
            CAPTURE(t.name);
            REQUIRE(first.find_tensor(t.name));
            CHECK(type_name(first.find_tensor(t.name)->type) == type_name(t.type));
            CHECK(std::ranges::equal(first.find_tensor(t.name)->data, t.data));
        }
        for (const std::string& path : {one, two}) fs::remove(path);
    }
}

TEST_CASE("several heads for multi-token prediction are left out, and said to be") {
    const Next model;
    HuggingFaceFiles files = model.files();
    const json header = files.weights.header;
    for (const auto& [name, entry] : header.items()) {
        const std::string first = "mtp.layers.0.";
        if (!name.starts_with(first)) continue;
        const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
        const std::string bytes = files.weights.data.substr(begin, end - begin);
        files.weights.add("mtp.layers.1." + name.substr(first.size()), entry["dtype"], entry["shape"], bytes);
    }
    const Finished finished = quantize(files, model.out, "F32");
    output(finished);
    CHECK(contains(finished.error, "has 2 heads for multi-token prediction, which are left out"));
    const ModelFile made = open_model_file(model.out);
    CHECK(made.integer("qwen3next.block_count") == 3);
    CHECK(!made.find("qwen3next.nextn_predict_layers"));
    CHECK(made.integers("qwen3next.attention.recurrent_layers") == std::vector<uint64_t>{1, 0, 1});
    CHECK(!logits(model.out).empty());
}

TEST_CASE("a directory of qwen3_next that is not whole is refused, and leaves no file") {
    const Next model;
    const HuggingFaceFiles whole = model.files();
    fs::remove(model.original);
    const auto check_refused = [&](const HuggingFaceFiles& files, const char* why) {
        const Finished finished = quantize(files, model.out, "F32");
        CHECK(finished.status == 1);
        CHECK_MESSAGE(contains(finished.error, why), finished.error);
        CHECK(fs::is_empty(model.place.path()));
    };
    const auto without = [&](const char* name) {
        HuggingFaceFiles files = whole; // its bytes are there, by a name that is passed over
        files.weights.header[std::string("model.visual.") + name] = files.weights.header[name];
        files.weights.header.erase(name);
        return files;
    };
    const auto with_shape = [&](const char* name, const json& shape) {
        HuggingFaceFiles files = whole;
        files.weights.header[name]["shape"] = shape;
        return files;
    };
    const std::string layer = "model.layers.0.linear_attn.", gates = layer + "in_proj_ba.weight";
    HuggingFaceFiles cut = whole;
    cut.weights.data.pop_back();
    check_refused(cut, "the file is damaged or not whole");
    check_refused(without(gates.c_str()), "tensor 'blk.0.ssm_beta.weight' is missing");
    check_refused(without("model.layers.2.linear_attn.in_proj_qkvz.weight"), "tensor 'blk.2.attn_qkv.weight' is missing");
    check_refused(without("mtp.fc.weight"), "tensor 'blk.3.nextn.eh_proj.weight' is missing");
    check_refused(with_shape(gates.c_str(), {64, 12}),
                  "tensor 'blk.0.ssm_ba.weight' has shape [12, 64, 1, 1], not [64, 12, 1, 1]");
    check_refused(with_shape((layer + "A_log").c_str(), {2, 3}), "tensor 'blk.0.ssm_a' has shape");
    HuggingFaceFiles damaged = whole;
    const float nan = std::nanf("");
    const uint64_t at = damaged.weights.header[gates]["data_offsets"][0];
    damaged.weights.data.replace(at + 4 * (7 * 64 + 1), 4, reinterpret_cast<const char*>(&nan), 4);
    check_refused(damaged, "tensor 'blk.0.ssm_ba.weight', row 7: a weight is NaN");
}
