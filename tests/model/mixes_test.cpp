// The mixes of llama-quantize: which tensors have more bits. The expected formats are from its files.
#include "model/weights/mixes.h"
#include <doctest/doctest.h>
#include <set>

using namespace tq;

namespace {

// A model of `layers` layers with a hidden size of 1024.
ModelFile file_of(const std::string& architecture, uint32_t layers, bool tied, uint32_t experts = 0) {
    ModelFile file("model");
    file.mutable_metadata()["general.architecture"] = file.add_text(architecture);
    file.mutable_metadata()[architecture + ".block_count"] = uint64_t(layers);
    if (experts != 0) file.mutable_metadata()[architecture + ".expert_count"] = uint64_t(experts);
    const auto add = [&](const std::string& name) {
        file.mutable_tensors().push_back({name, GgmlType::F16, {1024, 64, 1, 1}, {}});
    };
    add("token_embd.weight");
    if (!tied) add("output.weight");
    for (uint32_t i = layers; i-- > 0;) // in any order
        for (const char* name : {"attn_v.weight", "attn_k.weight", "attn_output.weight", "ffn_down.weight"})
            add("blk." + std::to_string(i) + '.' + name);
    return file;
}

MixedTypes types_of(const ModelFile& file, const char* mix, const MixOptions& options = {}) {
    std::vector<std::string_view> names;
    for (const FileTensor& t : file.tensors()) names.push_back(t.name);
    return {file, names, *find_mix(mix), options};
}

constexpr std::array<uint64_t, 4> matrix{1024, 64, 1, 1};

// The layers whose matrix of that name has the format.
std::set<uint32_t> layers_with(const ModelFile& file, const char* mix, const char* name, GgmlType type) {
    const MixedTypes types = types_of(file, mix);
    std::set<uint32_t> out;
    for (uint32_t i = 0; i < 100; ++i) {
        const std::string whole = "blk." + std::to_string(i) + '.' + name;
        if (file.find_tensor(whole) && types.of(whole, matrix) == type) out.insert(i);
    }
    return out;
}

} // namespace

TEST_CASE("Q4_K_M and Q5_K_M: six bits in the first and last eighth, and in every third layer between") {
    const ModelFile file = file_of("qwen3", 28, true);
    const std::set<uint32_t> more{0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27};
    for (const char* mix : {"Q4_K_M", "q4_k", "Q5_K_M", "q5_k"}) {
        CHECK(layers_with(file, mix, "ffn_down.weight", GgmlType::Q6_K) == more);
        CHECK(layers_with(file, mix, "attn_v.weight", GgmlType::Q6_K) == more);
        CHECK(layers_with(file, mix, "attn_k.weight", GgmlType::Q6_K).empty());
    }
    CHECK(layers_with(file, "Q5_K_S", "ffn_down.weight", GgmlType::Q5_K).size() == 28);
    CHECK(layers_with(file, "Q4_K_S", "attn_v.weight", GgmlType::Q5_K) == std::set<uint32_t>{0, 1, 2, 3});
    CHECK(layers_with(file, "Q4_K_S", "ffn_down.weight", GgmlType::Q5_K) == std::set<uint32_t>{0, 1, 2});
}

TEST_CASE("Q2_K, Q3_K_S, Q3_K_M and Q3_K_L") {
    ModelFile file = file_of("qwen3", 36, true);
    const auto all = [&](const char* mix, const char* name, GgmlType type) {
        return layers_with(file, mix, name, type).size() == 36;
    };
    for (const char* name : {"attn_v.weight", "attn_output.weight", "ffn_down.weight"}) {
        CAPTURE(name);
        CHECK(all("Q2_K", name, GgmlType::Q3_K));
        CHECK(all("q3_k_s", name, GgmlType::Q3_K));
        CHECK(all("Q3_K_L", name, GgmlType::Q5_K));
    }
    for (const char* mix : {"Q3_K_M", "q3_k"}) {
        CHECK(layers_with(file, mix, "attn_v.weight", GgmlType::Q5_K) == std::set<uint32_t>{0, 1});
        CHECK(layers_with(file, mix, "attn_v.weight", GgmlType::Q4_K).size() == 34);
        CHECK(layers_with(file, mix, "ffn_down.weight", GgmlType::Q5_K) == std::set<uint32_t>{0, 1});
        CHECK(layers_with(file, mix, "ffn_down.weight", GgmlType::Q4_K).size() == 34);
        CHECK(all(mix, "attn_output.weight", GgmlType::Q4_K));
        CHECK(all(mix, "attn_k.weight", GgmlType::Q3_K));
    }
    CHECK(all("Q2_K", "attn_k.weight", GgmlType::Q2_K));
    CHECK(all("Q3_K_L", "attn_k.weight", GgmlType::Q3_K));
    const auto set_heads = [&](uint64_t heads, uint64_t kv_heads) {
        file.mutable_metadata()["qwen3.attention.head_count"] = heads;
        file.mutable_metadata()["qwen3.attention.head_count_kv"] = kv_heads;
    };
    set_heads(32, 8);
    CHECK(all("Q2_K", "attn_v.weight", GgmlType::Q4_K));
    CHECK(all("Q2_K", "attn_output.weight", GgmlType::Q3_K));
    set_heads(24, 8);
    CHECK(all("Q2_K", "attn_v.weight", GgmlType::Q3_K));
    const std::vector<uint64_t> in_one_layer{0, 8}; // a hybrid
    file.mutable_metadata()["qwen3.attention.head_count_kv"] = in_one_layer;
    CHECK(all("Q2_K", "attn_v.weight", GgmlType::Q3_K));
}

TEST_CASE("eighty layers: values have five bits instead of three or four") {
    const ModelFile large = file_of("llama", 80, false), other = file_of("qwen3", 80, false);
    for (const char* mix : {"Q3_K_S", "Q3_K_M", "Q4_K_S"})
        CHECK(layers_with(large, mix, "attn_v.weight", GgmlType::Q5_K).size() == 80);
    CHECK(layers_with(large, "Q4_K_M", "attn_v.weight", GgmlType::Q5_K).size() == 40);
    CHECK(layers_with(large, "Q4_K_M", "attn_v.weight", GgmlType::Q6_K).size() == 40);
    CHECK(layers_with(large, "Q3_K_M", "ffn_down.weight", GgmlType::Q5_K).size() == 5);
    CHECK(layers_with(other, "Q3_K_S", "attn_v.weight", GgmlType::Q3_K).size() == 80);
}

TEST_CASE("the head has six bits, or what is asked for; a tied one is the embedding") {
    const ModelFile tied = file_of("qwen3", 4, true), untied = file_of("qwen3", 4, false);
    const auto type = [](const ModelFile& file, const char* mix, const char* name, const MixOptions& options = {}) {
        return types_of(file, mix, options).of(name, matrix);
    };
    for (const char* mix : {"Q4_0", "Q2_K", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q6_K", "Q5_1"}) {
        CHECK(type(tied, mix, "token_embd.weight") == GgmlType::Q6_K);
        CHECK(type(untied, mix, "token_embd.weight") == find_mix(mix)->type);
        CHECK(type(untied, mix, "output.weight") == GgmlType::Q6_K);
    }
    CHECK(type(tied, "Q8_0", "token_embd.weight") == GgmlType::Q8_0);
    CHECK(type(untied, "F16", "output.weight") == GgmlType::F16);
    CHECK(type(untied, "Q4_K_M", "output.weight", {.pure = true}) == GgmlType::Q4_K);
    CHECK(type(untied, "Q4_K_M", "output.weight", {.output_type = GgmlType::Q8_0}) == GgmlType::Q8_0);
    CHECK(type(untied, "Q4_K_M", "token_embd.weight", {.embedding_type = GgmlType::F16}) == GgmlType::F16);
}

TEST_CASE("eight experts: attention has more bits") {
    const ModelFile file = file_of("qwen3moe", 4, false, 8);
    CHECK(layers_with(file, "Q4_K_M", "attn_v.weight", GgmlType::Q8_0).size() == 4);
    CHECK(layers_with(file, "Q5_K_S", "attn_k.weight", GgmlType::Q8_0).size() == 4);
    CHECK(layers_with(file, "Q4_K_S", "attn_output.weight", GgmlType::Q5_K).size() == 4);
    for (const char* mix : {"Q2_K", "Q3_K_S", "Q3_K_M"})
        CHECK(layers_with(file, mix, "attn_output.weight", GgmlType::Q5_K).size() == 4);
    CHECK(layers_with(file, "Q3_K_L", "attn_output.weight", GgmlType::Q3_K).size() == 4); // as llama.cpp has it
    CHECK(layers_with(file, "Q3_K_L", "attn_v.weight", GgmlType::Q8_0).size() == 4);
    CHECK(layers_with(file_of("qwen3moe", 4, false, 9), "Q4_K_M", "attn_k.weight", GgmlType::Q4_K).size() == 4);
}

TEST_CASE("what keeps its own format, and rows that no block of 256 divides") {
    const ModelFile file = file_of("qwen35", 4, false);
    const MixedTypes types = types_of(file, "Q4_K_S");
    for (const char* name :
         {"blk.0.ffn_gate_inp.weight", "blk.0.ssm_beta.weight", "blk.0.ssm_alpha.weight", "blk.0.ssm_ba.weight",
          "blk.0.ssm_conv1d.weight", "blk.0.attn_norm.weight", "blk.0.ssm_dt.bias", "v.patch_embd.weight"})
        CHECK(!types.of(name, matrix));
    CHECK(!types.of("blk.0.ffn_gate_inp_shexp.weight", {1024, 1, 1, 1}));
    CHECK(types.of("blk.0.attn_q.weight", {96, 64, 1, 1}) == GgmlType::Q5_0);
    CHECK(types.of("output.weight", {96, 64, 1, 1}) == GgmlType::Q8_0);
    CHECK(types_of(file, "Q5_K_S").of("blk.0.attn_q.weight", {96, 64, 1, 1}) == GgmlType::Q5_1);
    for (const char* mix : {"Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L"}) {
        CHECK(types_of(file, mix).of("blk.0.attn_q.weight", {96, 64, 1, 1}) == GgmlType::Q4_0);
        CHECK(types_of(file, mix).requested("blk.0.attn_q.weight") == find_mix(mix)->type);
    }
    CHECK(types.of("blk.0.attn_q.weight", {40, 64, 1, 1}) == GgmlType::F16);
    CHECK(find_mix("Q2_K_S") == nullptr);
    CHECK(find_mix("") == nullptr);
}
