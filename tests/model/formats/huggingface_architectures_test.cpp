// Models of every architecture in Hugging Face's layout are those of GGUF files: the same configuration, and the same weights
// although a GGUF file of Llama's has the rows of queries and keys in another order.
#include "model/formats/architecture.h"
#include "model/formats/gguf.h"
#include "model/formats/huggingface.h"
#include "model/formats/open.h"
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
        {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
        {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"}};
    const size_t first = name.find('.', 4), last = name.rfind('.');
    for (const auto& [gguf, pytorch] : parts)
        if (name.substr(first + 1, last - first - 1) == gguf)
            return "model.layers." + name.substr(4, first - 4) + "." + pytorch + name.substr(last);
    FAIL("no name for ", name);
    return {};
}

// The bytes of a tensor; where RoPE turns neighbours, row h d + i of Hugging Face's is row h d + 2 i of GGUF's, and row h d + d /
// 2
// + i is row h d + 2 i + 1.
std::string bytes_of(const FileTensor& t, const Config& c) {
    const bool turned = t.name.ends_with("attn_q.weight") || t.name.ends_with("attn_k.weight");
    const std::string all(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    if (!turned || c.architecture->gguf_pairs == RopePairs::halves) return all;
    const size_t row = all.size() / t.ne[1];
    std::string out;
    for (size_t head = 0; head < t.ne[1]; head += c.head_dim) {
        for (size_t i = 0; i < c.head_dim / 2; i++) out += all.substr((head + 2 * i) * row, row);
        for (size_t i = 0; i < c.head_dim / 2; i++) out += all.substr((head + 2 * i + 1) * row, row);
    }
    return out;
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
    files.weights = {};
    for (const FileTensor& t : file.tensors())
        files.weights.add(pytorch_name(t.name), t.type == GgmlType::F32 ? "F32" : "F16",
                          t.ne[1] == 1 ? std::vector{t.ne[0]} : std::vector{t.ne[1], t.ne[0]}, bytes_of(t, c));
    return files;
}

} // namespace

TEST_CASE("a directory of any architecture has the configuration and the weights of a GGUF file") {
    for (const Architecture& a : architectures) {
        const std::string name(a.name);
        CAPTURE(name);
        Config c = small_config();
        c.architecture = &a;
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
    }
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
