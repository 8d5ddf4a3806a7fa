// Files of the larger set of test data, as other programs wrote them: GGUF of every format, the same model from Hugging Face,
// and the output of ggml's quantiser for it.
#include "model/files/formats/gguf.h"
#include "model/files/formats/open.h"
#include "model/load.h"
#include "tests/support/golden.h"
#include <algorithm>
#include <map>

using namespace tq;

using Ints = std::vector<int64_t>;

TEST_CASE("the tiny model's directory is its GGUF file") {
    const auto directory = larger_set("qwen3-tiny-hf"), folder = larger_set("qwen3-tiny");
    if (!directory || !folder) return;
    const ModelFile hf = open_model_file(*directory), gguf = open_model_file(*folder / "tiny-bf16.gguf");
    CHECK(hf.strings("tokenizer.ggml.tokens") == gguf.strings("tokenizer.ggml.tokens"));
    CHECK(hf.strings("tokenizer.ggml.merges") == gguf.strings("tokenizer.ggml.merges"));
    CHECK(std::get<Ints>(*hf.find("tokenizer.ggml.token_type")) == std::get<Ints>(*gguf.find("tokenizer.ggml.token_type")));
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template", "general.architecture"})
        CHECK(hf.text(key) == gguf.text(key));
    for (const char* key : {"qwen3.block_count", "qwen3.context_length", "qwen3.embedding_length", "qwen3.feed_forward_length",
                            "qwen3.attention.head_count", "qwen3.attention.head_count_kv", "qwen3.attention.key_length",
                            "tokenizer.ggml.eos_token_id"})
        CHECK(hf.integer(key) == gguf.integer(key));
    REQUIRE(hf.tensors().size() == gguf.tensors().size());
    for (const FileTensor& t : gguf.tensors()) {
        CAPTURE(t.name);
        const FileTensor* same = hf.find_tensor(t.name);
        REQUIRE(same);
        CHECK(same->ne == t.ne);
        if (same->type == t.type) CHECK(std::ranges::equal(same->data, t.data));
    }
}

TEST_CASE("matrices in files of whole numbers of bits are quantised as ggml did it") {
    const auto folder = larger_set("qwen3-tiny");
    if (!folder) return;
    const ModelFile f32 = open_model_file(*folder / "tiny-f32.gguf");
    const Config config = read_config(f32);
    ThreadPool pool;
    for (const auto& [type, name] : {std::pair(GgmlType::Q8_0, "tiny-q8_0.gguf"), {GgmlType::Q4_0, "tiny-q4_0.gguf"}}) {
        CAPTURE(name);
        const ModelFile theirs = open_model_file(*folder / name);
        Weights weights = read_weights(f32, config);
        CHECK(quantise(weights, type) == 16); // seven of each layer, embedding and head
        const LoadedWeights loaded = load_weights(pool, weights);
        uint32_t compared = 0;
        const auto same = [&](const Tensor& t) {
            CAPTURE(t.name);
            CHECK(t.source == nullptr);
            const FileTensor& their = *theirs.find_tensor(t.name);
            if (their.type != type) return; // a head that they store with more bits
            CHECK(std::ranges::equal(t.data, their.data));
            ++compared;
        };
        same(loaded.weights.token_embd);
        same(loaded.weights.output);
        for (const LayerWeights& l : loaded.weights.layers)
            for (const Tensor* t : {&l.attn_q, &l.attn_k, &l.attn_v, &l.attn_output, &l.ffn_gate, &l.ffn_up, &l.ffn_down})
                same(*t);
        CHECK(compared >= 14);
        CHECK(weights.layers[0].attn_norm.type == GgmlType::F32);
        CHECK(weights.bytes() < read_weights(f32, config).bytes() / 3);
    }
}

TEST_CASE("files made by other programs: every format, with the sizes it has") {
    const auto folder = larger_set("qwen3-tiny");
    if (!folder) return;
    ThreadPool pool;
    const std::map<std::string, uint64_t> sizes{
        {"f32", 5774336},   {"f16", 2890752},       {"bf16", 2890752},  {"q8_0", 1539072}, {"q4_0", 818176},
        {"q4_1", 908288},   {"q5_0", 998400},       {"q5_1", 1088512},  {"q2_k", 480256},  {"q3_k_m", 626688},
        {"q4_k_m", 818176}, {"q4_k_m-mix", 885760}, {"q5_k_m", 998400}, {"q6_k", 1189888}, {"iq4_nl", 818176},
        {"iq4_xs", 773120}, {"mxfp4_moe", 773120}};
    for (const auto& [name, bytes] : sizes) {
        CAPTURE(name);
        const ModelFile g = read_gguf(*folder / ("tiny-" + name + ".gguf"));
        const Weights w = read_weights(g, read_config(g));
        CHECK(w.bytes() == bytes);
        CHECK(!w.tied);
        load_weights(pool, w);
    }
}
