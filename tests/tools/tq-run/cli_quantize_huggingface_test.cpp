// tq-run quantize on Hugging Face directories with settings that GGUF files, or llama.cpp, do not have.
#include "tests/support/huggingface_files.h"
#include "tests/tools/tq-run/quantized.h"

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

TEST_CASE("Llama 3's scaling of RoPE, which GGUF files of Qwen3 lack, is refused before a byte is written") {
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["config.json"]["rope_scaling"] = {{"rope_type", "llama3"},
                                                      {"factor", 8.0},
                                                      {"low_freq_factor", 1.0},
                                                      {"high_freq_factor", 4.0},
                                                      {"original_max_position_embeddings", 64}};
    const TemporaryDirectory from;
    files.write(from);
    CHECK(logits(from.path().string()) != "");
    const Place place;
    for (const char* type : {"F16", "Q8_0"})
        check_refused(quantize({from.path().string(), place.path("out.gguf"), type}), 1,
                      "RoPE has the scaling of Llama 3, which GGUF files of 'qwen3' cannot have: run the directory itself");
    CHECK(fs::is_empty(place.directory.path()));
}

// Zeros of the same tensors, with two experts and a router in the place of the feed-forward.
static SafetensorsWriter with_two_experts(const SafetensorsWriter& dense) {
    SafetensorsWriter out;
    const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
        out.add(name, "BF16", shape, std::string(2 * shape[0] * (shape.size() > 1 ? shape[1] : 1), '\0'));
    };
    const std::string mlp = "model.layers.0.mlp.";
    for (const auto& [name, tensor] : dense.header.items()) {
        const std::vector<uint64_t> shape = tensor["shape"];
        if (!name.starts_with(mlp))
            add(name, shape);
        else
            for (const char* expert : {"experts.0.", "experts.1."}) add(mlp + expert + name.substr(mlp.size()), shape);
    }
    add(mlp + "gate.weight", {2, 32});
    return out;
}

TEST_CASE("a note names settings of a directory that llama.cpp does not follow in GGUF files") {
    const Place place;
    const auto note = [&](const json& scaling, const json& more = json::object()) {
        HuggingFaceFiles files = small_huggingface_model();
        json& config = files.documents["config.json"];
        config["rope_scaling"] = scaling;
        config.update(more);
        if (config.contains("num_experts")) files.weights = with_two_experts(files.weights);
        const TemporaryDirectory from;
        files.write(from);
        const Finished finished = quantize({from.path().string(), place.path("out.gguf"), "F16", "--overwrite"});
        CHECK_MESSAGE(finished.status == 0, finished.error);
        return finished.error;
    };
    json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
    CHECK(!contains(note(yarn), "llama.cpp"));
    yarn.update({{"beta_fast", 32}, {"beta_slow", 1}});
    CHECK(!contains(note(yarn), "llama.cpp"));
    yarn["beta_fast"] = 16;
    const std::string beta = note(yarn);
    CHECK_MESSAGE(contains(beta, "tq-run: llama.cpp does not follow YaRN's beta_fast 16 and beta_slow 1: it will compute"), beta);
    json experts{{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"model_type", "qwen3_moe"},
                 {"num_experts", 2},
                 {"num_experts_per_tok", 1},
                 {"moe_intermediate_size", 64},
                 {"norm_topk_prob", true}};
    CHECK(!contains(note(nullptr, experts), "llama.cpp"));
    experts["norm_topk_prob"] = false;
    const std::string both = note(yarn, experts);
    CHECK_MESSAGE(contains(both, "beta_slow 1, nor norm_topk_prob false: it will compute"), both);
}
