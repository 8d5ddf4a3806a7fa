// Writes the inputs that the fuzz targets begin with, below tests/fuzz/corpus: make_fuzz_corpus DIRECTORY
#include "tests/fuzz/prompt_cache_owner.h"
#include "tests/gguf_writer.h"
#include "tests/huggingface_files.h"
#include "tests/vocabulary_file.h"
#include <filesystem>
#include <fstream>
#include <iostream>

using namespace tq::test;
using tq::GgmlType;

namespace {

void write(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// One layer, hidden 32, ffn 32, one head of 64, 4 rows of embedding.
std::string gguf_model(GgmlType type) {
    GgufWriter w;
    w.set("general.architecture", "qwen3");
    for (const auto& [key, value] : {std::pair("block_count", 1),
                                     {"context_length", 64},
                                     {"embedding_length", 32},
                                     {"feed_forward_length", 32},
                                     {"attention.head_count", 1},
                                     {"attention.head_count_kv", 1},
                                     {"attention.key_length", 64}})
        w.set(std::string("qwen3.") + key, uint64_t(value));
    w.set("qwen3.rope.freq_base", 1e6);
    w.set("qwen3.attention.layer_norm_rms_epsilon", 1e-6);
    w.add_tensor("token_embd.weight", type, {32, 4});
    w.add_tensor("output_norm.weight", GgmlType::F32, {32});
    for (const auto& [name, cols] : {std::pair("attn_norm", 32), {"ffn_norm", 32}, {"attn_q_norm", 64}, {"attn_k_norm", 64}})
        w.add_tensor(std::string("blk.0.") + name + ".weight", GgmlType::F32, {uint64_t(cols)});
    for (const char* name : {"attn_q", "attn_k", "attn_v"})
        w.add_tensor(std::string("blk.0.") + name + ".weight", type, {32, 64});
    w.add_tensor("blk.0.attn_output.weight", type, {64, 32});
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"})
        w.add_tensor(std::string("blk.0.") + name + ".weight", type, {32, 32});
    return w.zeros();
}

std::string gguf_values() {
    GgufWriter w;
    w.set("i", int64_t(-7));
    w.set("b", true);
    w.set("texts", std::vector<std::string_view>{"one", "", "three"});
    w.set("ints", std::vector<int64_t>{1, -2});
    w.set_raw("split.no", 2, raw(uint16_t(0)));
    w.set_raw("split.count", 2, raw(uint16_t(1)));
    w.add_tensor("a", GgmlType::Q6_K, {256, 2});
    return w.zeros();
}

std::string prompt_cache() {
    const tq::PromptCacheOwner owner = tq::fuzz::prompt_cache_owner();
    const std::vector<uint32_t> ids{3, 1, 4};
    std::string bytes;
    tq::write_prompt_cache(
        owner, ids,
        [&](uint32_t layer, tq::KvSide side) {
            return tq::StoredSide(owner.kv.codec(layer, 1, side, owner.config.head_dim), 2, uint32_t(ids.size()));
        },
        [&](std::span<const std::byte> piece) { bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size()); });
    return bytes;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) return std::cerr << "usage: make_fuzz_corpus DIRECTORY\n", 2;
    const std::filesystem::path to = argv[1];
    write(to / "gguf/q4_0.gguf", gguf_model(GgmlType::Q4_0));
    write(to / "gguf/values.gguf", gguf_values());

    write(to / "prompt_cache/three.kv", prompt_cache());

    SafetensorsWriter weights;
    weights.add("model.norm.weight", "F32", {2, 3}, std::string(24, 'a'));
    weights.add("lm_head.weight", "BF16", {4}, std::string(8, 'b'));
    weights.add("scalar", "F16", {}, "cc");
    weights.header["__metadata__"] = {{"format", "pt"}};
    write(to / "safetensors/three.safetensors", weights.bytes());

    HuggingFaceFiles files = small_huggingface_model();
    json& config = files.documents["config.json"];
    write(to / "config/plain", config.dump() + "\n-\n" + files.documents["generation_config.json"].dump());
    config.erase("rope_theta");
    config["rope_parameters"] = {{"rope_type", "yarn"},
                                 {"factor", 4.0},
                                 {"original_max_position_embeddings", 1024},
                                 {"rope_theta", 1e6},
                                 {"attention_factor", 1.5}};
    write(to / "config/yarn", config.dump());

    json tokenizer = files.documents["tokenizer.json"];
    write(to / "tokenizer/texts", tokenizer.dump() + "\n-\n" + files.documents["tokenizer_config.json"].dump());
    tokenizer["model"]["merges"] = json::array({json::array({"a", "a"}), json::array({"u", "s"})});
    write(to / "tokenizer/pairs", tokenizer.dump());
}
