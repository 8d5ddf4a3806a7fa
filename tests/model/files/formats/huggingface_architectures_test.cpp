// Models of every architecture in Hugging Face's layout are those of GGUF files: the same configuration, and the same weights
// although a GGUF file of Llama's has the rows of queries and keys in another order.
#include "base/error.h"
#include "model/files/formats/architecture.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/huggingface.h"
#include "model/files/formats/open.h"
#include "model/weights/weights.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/random_model.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

std::string pytorch_name(const std::string& name) {
    const std::pair<const char*, const char*> whole[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                                         {"output_norm.weight", "model.norm.weight"}};
    for (const auto& [gguf, pytorch] : whole)
        if (name == gguf) return pytorch;
    const std::pair<std::string, std::string> parts[] = {
        {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
        {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
        {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
        {"ffn_gate_inp", "mlp.gate"},        {"attn_v", "self_attn.v_proj"},
        {"attn_output", "self_attn.o_proj"}, {"ffn_gate", "mlp.gate_proj"},
        {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
    const size_t first = name.find('.', 4), last = name.rfind('.');
    for (const auto& [gguf, pytorch] : parts)
        if (name.substr(first + 1, last - first - 1) == gguf)
            return "model.layers." + name.substr(4, first - 4) + "." + pytorch + name.substr(last);
    FAIL("no name for ", name);
    return {};
}

// The bytes of a tensor; if RoPE turns neighbours, row h d + i of Hugging Face's is row h d + 2 i of GGUF's, and row
// h d + d / 2 + i is row h d + 2 i + 1.
std::string bytes_of(const FileTensor& t, const Config& c) {
    const bool turned = t.name.ends_with("attn_q.weight") || t.name.ends_with("attn_k.weight");
    const std::string all(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    if (!turned || c.architecture->gguf_pairs == RopePairs::split) return all;
    const size_t row = all.size() / t.ne[1];
    std::string out;
    for (size_t head = 0; head < t.ne[1]; head += c.head_dim) {
        for (size_t i = 0; i < c.head_dim / 2; i++) out += all.substr((head + 2 * i) * row, row);
        for (size_t i = 0; i < c.head_dim / 2; i++) out += all.substr((head + 2 * i + 1) * row, row);
    }
    return out;
}

// Adds the matrices of a stack one by one.
void add_experts(HuggingFaceFiles& files, const FileTensor& t) {
    const std::string all(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    const size_t bytes = all.size() / t.ne[2], dot = t.name.find('.', 4);
    const std::string matrix = t.name.substr(dot + 5, t.name.find("_exps") - dot - 5); // "up" of "blk.0.ffn_up_exps.weight"
    for (size_t e = 0; e < t.ne[2]; e++)
        files.weights.add(fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.weight", t.name.substr(4, dot - 4), e, matrix),
                          "F16", {t.ne[1], t.ne[0]}, all.substr(e * bytes, bytes));
}

HuggingFaceFiles converted(const ModelFile& file, const Config& c) {
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["config.json"] = {{"architectures", json::array({c.architecture->class_name})},
                                      {"model_type", c.architecture->model_type},
                                      {"hidden_act", "silu"},
                                      {"hidden_size", c.hidden_size},
                                      {"intermediate_size", c.intermediate_size},
                                      {"max_position_embeddings", c.max_position_embeddings},
                                      {"num_attention_heads", c.num_attention_heads},
                                      {"num_hidden_layers", c.num_hidden_layers},
                                      {"num_key_value_heads", c.num_key_value_heads},
                                      {"head_dim", c.head_dim},
                                      {"rms_norm_eps", c.rms_norm_eps},
                                      {"rope_theta", c.rope_theta},
                                      {"tie_word_embeddings", true},
                                      {"vocab_size", c.vocab_size}};
    if (c.num_experts != 0)
        files.documents["config.json"].update({{"num_experts", c.num_experts},
                                               {"num_experts_per_tok", c.num_experts_per_tok},
                                               {"moe_intermediate_size", c.moe_intermediate_size},
                                               {"norm_topk_prob", c.norm_topk_prob}});
    files.weights = {};
    for (const FileTensor& t : file.tensors()) {
        if (t.ne[2] > 1) {
            add_experts(files, t);
            continue;
        }
        files.weights.add(pytorch_name(t.name), t.type == GgmlType::F32 ? "F32" : "F16",
                          t.ne[1] == 1 ? std::vector{t.ne[0]} : std::vector{t.ne[1], t.ne[0]}, bytes_of(t, c));
    }
    return files;
}

} // namespace

TEST_CASE("a directory of any architecture has the configuration and the weights of a GGUF file") {
    for (const Architecture& a : architectures) {
        if (a.hybrid) continue; // these have names of their own
        const std::string name(a.name);
        CAPTURE(name);
        const Config c = small_config(a);
        const TemporaryFile path;
        write_random_model(path.path(), {c, GgmlType::F16, true, 3, {}});
        const ModelFile gguf = read_gguf(path.path());
        const TemporaryDirectory directory;
        converted(gguf, c).write(directory);

        const ModelFile hf = open_model_file(directory.path());
        const Config got = read_config(hf), want = read_config(gguf);
        CHECK(got.architecture == &a);
        CHECK(got.head_dim == want.head_dim);
        CHECK(got.num_key_value_heads == want.num_key_value_heads);
        CHECK(got.rope_theta == want.rope_theta);
        CHECK(got.rms_norm_eps == want.rms_norm_eps);
        CHECK(got.num_experts == want.num_experts);
        CHECK(got.num_experts_per_tok == want.num_experts_per_tok);
        CHECK(got.moe_intermediate_size == want.moe_intermediate_size);
        CHECK(got.norm_topk_prob);
        std::vector<std::vector<float>> tensors;
        const Weights wanted = read_weights(gguf, want), read = read_weights(hf, got);
        for_each_tensor(wanted, [&](const Tensor& t) { tensors.push_back(to_floats(t)); });
        size_t i = 0;
        for_each_tensor(read, [&](const Tensor& t) {
            CAPTURE(t.name);
            REQUIRE(i < tensors.size());
            CHECK(to_floats(t) == tensors[i++]);
        });
        CHECK(i == tensors.size());
        CHECK(read.layers[1].ffn_down.is_mapped()); // experts too, which the directory has one by one
    }
}

TEST_CASE("a mixture's configuration is read as transformers reads it, and layers without experts are refused") {
    const auto read = [](const json& changed) {
        HuggingFaceFiles files = small_huggingface_model();
        json config = {{"model_type", "qwen3_moe"},
                       {"hidden_size", 128},
                       {"max_position_embeddings", 64},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", 64},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 1e6},
                       {"vocab_size", 288},
                       {"num_experts", 4},
                       {"num_experts_per_tok", 2},
                       {"moe_intermediate_size", 64}};
        config.update(changed);
        files.documents["config.json"] = config;
        return config_of(files);
    };
    CHECK(!read(json::object()).norm_topk_prob);
    CHECK(read({{"norm_topk_prob", true}, {"mlp_only_layers", json::array()}, {"decoder_sparse_step", 1}}).norm_topk_prob);
    CHECK(!read({{"norm_topk_prob", false}}).norm_topk_prob);
    const Config least = read({{"head_dim", nullptr}, {"num_key_value_heads", nullptr}, {"rope_theta", nullptr}});
    CHECK(least.head_dim == 64);
    CHECK(least.num_key_value_heads == 2);
    CHECK(least.rope_theta == 10000);
    const auto error = [&](const json& changed) {
        try {
            read(changed);
            return std::string();
        } catch (const Error& e) {
            return std::string(e.what());
        }
    };
    CHECK(
        contains(error({{"mlp_only_layers", {0}}}), "'mlp_only_layers' is [0]; tq-run runs models with experts in every layer"));
    CHECK(contains(error({{"decoder_sparse_step", 2}}), "'decoder_sparse_step' is 2; "));
    CHECK(contains(error({{"num_experts", 513}}), "'num_experts' is 513; tq-run runs 1 to 512"));
    CHECK(contains(error({{"num_experts_per_tok", 5}}), "'num_experts_per_tok' is 5; tq-run runs 1 to 4"));
    CHECK(
        contains(error({{"num_experts_per_tok", 17}, {"num_experts", 64}}), "'num_experts_per_tok' is 17; tq-run runs 1 to 16"));
    CHECK(contains(error({{"moe_intermediate_size", 48}}), "'moe_intermediate_size' is 48; "));
}

TEST_CASE("keys that config.json may lack have transformers' values") {
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["config.json"] = {{"model_type", "llama"},         {"hidden_size", 128},     {"intermediate_size", 64},
                                      {"max_position_embeddings", 64}, {"num_hidden_layers", 1}, {"num_attention_heads", 2},
                                      {"rms_norm_eps", 1e-5},          {"vocab_size", 288}};
    const TemporaryDirectory directory;
    files.write(directory);
    ModelFile file(directory.path());
    read_huggingface_config(file, directory.path());
    file.mutable_metadata()["tokenizer.ggml.tokens"] = std::vector<std::string_view>{"a"};
    const Config c = read_config(file);
    CHECK(c.head_dim == 64);
    CHECK(c.num_key_value_heads == 2);
    CHECK(c.rope_theta == 10000);
}
