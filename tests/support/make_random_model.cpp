// make_random_model: writes a GGUF file of a given Qwen3 shape with random weights.
#include "base/error.h"
#include "base/printable.h"
#include "model/files/formats/gguf.h"
#include "model/weights/synthetic/synthetic.h"
#include "tests/support/random_model.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>

namespace {

using tq::Config;
using tq::GgmlType;

// The types by their names in lower case, such as "q4_k".
std::map<std::string, GgmlType> named_types() {
    std::map<std::string, GgmlType> types;
    for (const GgmlType type : tq::weight_formats) {
        types.emplace(tq::lowercase(tq::type_name(type)), type);
    }
    return types;
}
template <class T> std::vector<std::string> names(const std::map<std::string, T>& map) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : map) keys.push_back(key);
    return keys;
}

// 0 leaves the preset's value.
void take(uint32_t& size, uint32_t flag) {
    if (flag != 0) size = flag;
}

} // namespace

int main(int argc, char** argv) try {
    const auto types = named_types();
    CLI::App app("Writes a GGUF file of a given Qwen3 shape with random weights.");
    std::string path, shape = "small", type = "q8_0", vocabulary;
    Config flags{};
    uint64_t seed = 1;
    app.add_option("file", path, "file to write")->required();
    app.add_option("--shape", shape, "shape to begin with: small, or one of --synthetic")->capture_default_str();
    app.add_option("--hidden", flags.hidden_size, "hidden size, a multiple of 32");
    app.add_option("--ffn", flags.intermediate_size, "feed-forward size, a multiple of 32");
    app.add_option("--layers", flags.num_hidden_layers, "layers");
    app.add_option("--heads", flags.num_attention_heads, "query heads");
    app.add_option("--kv-heads", flags.num_key_value_heads, "key/value heads");
    app.add_option("--vocab", flags.vocab_size, "rows of the embedding");
    app.add_option("--type", type, "format of the matrices")->check(CLI::IsMember(names(types)))->capture_default_str();
    bool is_tied = true;
    const auto* tied = app.add_flag("--tied,!--untied", is_tied, "whether the output head is the embedding");
    app.add_option("--vocab-from", vocabulary, "GGUF file to copy the tokenizer from; default: one token per byte");
    app.add_option("--seed", seed, "seed")->capture_default_str();
    bool is_sparse = false;
    app.add_flag("--sparse", is_sparse,
                 "matrices of layers, but for routers, are zeros that take no room on the disk: for files of any size");
    tq::test::RandomModel perfect;
    app.add_flag("--perfect-mtp", perfect.perfect_mtp, "the head for multi-token prediction (a shape with +mtp) is always right");
    app.add_option("--wrong", perfect.wrong, "but after so many of 256 ids");
    CLI11_PARSE(app, argc, argv);

    const bool is_small = shape == "small";
    const tq::SyntheticModel synthetic = tq::parse_synthetic(is_small ? "qwen3-0.6b" : shape);
    Config config = is_small ? tq::test::small_config() : synthetic.config;
    take(config.hidden_size, flags.hidden_size);
    take(config.intermediate_size, flags.intermediate_size);
    take(config.num_hidden_layers, flags.num_hidden_layers);
    take(config.num_attention_heads, flags.num_attention_heads);
    take(config.num_key_value_heads, flags.num_key_value_heads);
    take(config.vocab_size, flags.vocab_size);
    if (config.num_experts != 0) config.moe_intermediate_size = config.intermediate_size / config.num_experts_per_tok;
    if (config.hidden_size % 32 != 0 || config.intermediate_size % 32 != 0) tq::fail("--hidden and --ffn are multiples of 32");
    if (tied->count() == 0) is_tied = synthetic.tied;
    if (perfect.perfect_mtp && config.nextn_predict_layers == 0) tq::fail("--perfect-mtp is for shapes with +mtp");
    tq::test::write_random_model(
        path, {config, types.at(type), is_tied, seed, vocabulary, perfect.perfect_mtp, perfect.wrong, is_sparse});
    try {
        tq::read_config(tq::read_gguf(path)); // throws if the shape is not supported
    } catch (const tq::Error&) {
        if (std::filesystem::is_regular_file(path)) std::filesystem::remove(path);
        throw;
    }
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_random_model: {}\n", e.what());
    return 1;
}
