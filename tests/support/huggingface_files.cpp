#include "tests/support/huggingface_files.h"
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/huggingface.h"
#include "tests/support/vocabulary_file.h"
#include <numeric>

namespace tq::test {
namespace {

json added_token(const std::string& text, int64_t type) {
    return {{"content", text}, {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false},  {"special", type == 3}};
}

json small_config() {
    return {{"architectures", json::array({"Qwen3ForCausalLM"})},
            {"model_type", "qwen3"},
            {"attention_bias", false},
            {"eos_token_id", 260},
            {"head_dim", 64},
            {"hidden_act", "silu"},
            {"hidden_size", 32},
            {"intermediate_size", 64},
            {"max_position_embeddings", 4096},
            {"num_attention_heads", 1},
            {"num_hidden_layers", 1},
            {"num_key_value_heads", 1},
            {"rms_norm_eps", 1e-6},
            {"rope_scaling", nullptr},
            {"rope_theta", 1000000},
            {"sliding_window", nullptr},
            {"tie_word_embeddings", true},
            {"torch_dtype", "bfloat16"},
            {"use_sliding_window", false},
            {"vocab_size", 288}};
}

} // namespace

void SafetensorsWriter::add(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape,
                            const std::string& bytes) {
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
}

std::string SafetensorsWriter::bytes(const std::string& header_text) const {
    return raw(uint64_t(header_text.size())) + header_text + data;
}

void HuggingFaceFiles::write(const TemporaryDirectory& directory) const {
    for (const auto& [name, document] : documents) directory.write(name, document.dump());
    for (const auto& [name, text] : texts) directory.write(name, text);
    if (!weights.header.empty()) directory.write("model.safetensors", weights.bytes());
}

json tokenizer_json(const std::vector<std::string>& tokens, const std::vector<int64_t>& types,
                    const std::vector<std::string>& merges, bool merges_as_pairs) {
    json vocabulary = json::object(), added = json::array(), list = json::array();
    for (size_t id = 0; id < tokens.size(); ++id) {
        if (types[id] == 1) vocabulary[tokens[id]] = id;
        if (types[id] != 3 && types[id] != 4) continue;
        added.push_back(added_token(tokens[id], types[id]));
        added.back()["id"] = id;
    }
    for (const std::string& merge : merges) {
        const size_t space = merge.find(' ', 1);
        list.push_back(merges_as_pairs ? json::array({merge.substr(0, space), merge.substr(space + 1)}) : json(merge));
    }
    const json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    const json split{
        {"type", "Split"},
        {"pattern",
         {{"Regex", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}},
        {"behavior", "Isolated"},
        {"invert", false}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added},
            {"normalizer", {{"type", "NFC"}}},
            {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({split, byte_level})}}},
            {"post_processor", byte_level},
            {"decoder", byte_level},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", ""},
              {"end_of_word_suffix", ""},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", false},
              {"vocab", vocabulary},
              {"merges", list}}}};
}

void add_vocab_and_merges(HuggingFaceFiles& files, const std::vector<std::string>& tokens, const std::vector<int64_t>& types,
                          const std::vector<std::string>& merges) {
    json vocabulary = json::object(), decoder = json::object();
    for (size_t id = 0; id < tokens.size(); ++id) {
        if (types[id] == 1) vocabulary[tokens[id]] = id;
        if (types[id] == 3 || types[id] == 4) decoder[std::to_string(id)] = added_token(tokens[id], types[id]);
    }
    files.documents["vocab.json"] = vocabulary;
    files.documents["tokenizer_config.json"]["tokenizer_class"] = "Qwen2Tokenizer";
    files.documents["tokenizer_config.json"]["added_tokens_decoder"] = decoder;
    files.texts["merges.txt"] =
        std::accumulate(merges.begin(), merges.end(), std::string("#version: 0.2\n"),
                        [](std::string all, const std::string& merge) { return std::move(all) + merge + '\n'; });
}

HuggingFaceFiles small_huggingface_model() {
    HuggingFaceFiles files;
    VocabularyFile vocabulary;
    for (const auto& [left, right] : {std::pair("a", "a"), {"aa", "aa"}, {"u", "s"}}) vocabulary.merge(left, right);
    for (const char* text : {"<|endoftext|>", "<|im_end|>", "<|im_start|>"}) vocabulary.add(text, 3);
    vocabulary.add("<think>", 4);
    files.documents["config.json"] = small_config();
    files.documents["generation_config.json"] = {
        {"eos_token_id", {260, 259}}, {"temperature", 0.5}, {"top_k", 7}, {"top_p", 0.75}};
    files.documents["tokenizer.json"] = tokenizer_json(vocabulary.tokens, vocabulary.types, vocabulary.merges);
    files.documents["tokenizer_config.json"] = {{"eos_token", "<|im_end|>"}, {"tokenizer_class", "Qwen2Tokenizer"}};
    const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
        const uint64_t elements = std::accumulate(shape.begin(), shape.end(), uint64_t(1), std::multiplies());
        files.weights.add(name, "BF16", shape, std::string(elements * 2, '\0'));
    };
    add("model.embed_tokens.weight", {288, 32});
    for (const char* name : {"input_layernorm", "post_attention_layernorm"})
        add(std::string("model.layers.0.") + name + ".weight", {32});
    for (const char* name : {"q_norm", "k_norm"}) add(std::string("model.layers.0.self_attn.") + name + ".weight", {64});
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
        add(std::string("model.layers.0.self_attn.") + name + ".weight", {64, 32});
    add("model.layers.0.self_attn.o_proj.weight", {32, 64});
    for (const char* name : {"gate_proj", "up_proj"}) add(std::string("model.layers.0.mlp.") + name + ".weight", {64, 32});
    add("model.layers.0.mlp.down_proj.weight", {32, 64});
    add("model.norm.weight", {32});
    return files;
}

Config config_of(const HuggingFaceFiles& files) {
    const TemporaryDirectory directory;
    files.write(directory);
    ModelFile file(directory.path());
    read_huggingface_config(file, directory.path());
    file.mutable_metadata()["tokenizer.ggml.tokens"] = std::vector<std::string_view>{"a"};
    return read_config(file);
}

} // namespace tq::test
