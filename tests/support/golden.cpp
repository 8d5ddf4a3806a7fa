#include "tests/support/golden.h"
#include "model/text/tokenizer.h"
#include "tests/support/skip.h"
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

namespace tq {
namespace {

// The choices of each layer's router, which files have token by token.
std::vector<host::Routes> read_router(const nlohmann::json& json) {
    std::vector<host::Routes> out;
    for (const nlohmann::json& layer : json.value("router", nlohmann::json::array())) {
        host::Routes& routes = out.emplace_back();
        for (const nlohmann::json& token : layer.at("ids"))
            for (const nlohmann::json& id : token) routes.ids.push_back(id);
        for (const nlohmann::json& token : layer.at("weights"))
            for (const nlohmann::json& weight : token) routes.weights.push_back(weight);
    }
    return out;
}

// The logits that the output matrix makes of the state of the last of these ids.
std::vector<float> logits_of_state(const Golden& golden, Forward& forward, std::span<const uint32_t> ids) {
    const std::vector<float> output = to_floats(golden.weights.output);
    std::vector<float> logits;
    const auto multiply = [&](size_t, uint32_t, std::span<const float> state) {
        for (size_t row = 0; row < output.size(); row += state.size())
            logits.push_back(float(std::inner_product(state.begin(), state.end(), output.begin() + ptrdiff_t(row), 0.0)));
    };
    const Span span{0, ids, Span::Logits::hidden};
    forward.run({&span, 1}, multiply);
    return logits;
}

} // namespace

uint32_t greedy(const Tokenizer& tokenizer, std::span<const float> logits) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < logits.size(); i++)
        if (logits[i] > logits[best] && !tokenizer.is_unused(i)) best = i;
    return best;
}

std::optional<std::filesystem::path> larger_set(const char* name) {
    const char* set = std::getenv("TQ_SHARED");
    const auto path =
        (set != nullptr ? std::filesystem::path(set) : std::filesystem::path(TQ_SOURCE_DIR) / ".." / "shared") / "data" / name;
    if (std::filesystem::exists(path)) return path;
    test::skip("no " + path.string());
    return std::nullopt;
}

Golden load_golden(const std::filesystem::path& path, const char* answers, bool mtp) {
    const bool is_directory = std::filesystem::is_directory(path);
    nlohmann::json json;
    std::ifstream(is_directory ? path / answers : std::filesystem::path(path).replace_extension(".json")) >> json;
    ModelFile file = open_model_file(path);
    const Config config = read_config(file, mtp);
    Weights weights = read_weights(file, config);
    return {path.stem().string(),  std::move(file),        config,
            std::move(weights),    json.at("prompt_ids"),  json.at("greedy_prompt_ids"),
            json.at("greedy_ids"), json.at("logits_last"), read_router(json)};
}

std::vector<std::filesystem::path> golden_files() {
    return {test_data("qwen3-mixed.gguf"), test_data("qwen3-low-bits.gguf"), test_data("qwen3-tied-hf"),
            test_data("llama3.gguf")};
}

Golden golden_quantised(GgmlType type) {
    Golden golden = load_golden(test_data("qwen3-tied-hf"), type == GgmlType::Q8_0 ? "expected-q8_0.json" : "expected-q4_0.json");
    CHECK(quantise(golden.weights, type) == 15);          // seven of each layer, and the embedding
    CHECK(quantise(golden.weights, GgmlType::Q4_0) == 0); // it has fewer bits already
    return golden;
}

std::vector<std::filesystem::path> larger_set_golden_files() {
    const auto folder = larger_set("qwen3-tiny"), directory = larger_set("qwen3-tiny-hf");
    if (!folder || !directory) return {};
    std::vector<std::filesystem::path> files;
    for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k_m", "q4_k_m",
                             "q4_k_m-mix", "q5_k_m", "q6_k", "iq4_nl", "iq4_xs", "mxfp4_moe"})
        files.push_back(*folder / (std::string("tiny-") + type + ".gguf"));
    files.push_back(*directory);
    return files;
}

std::vector<std::filesystem::path> other_architectures() {
    const auto qwen2 = larger_set("qwen2-tiny"), llama = larger_set("llama-tiny"), moe = larger_set("qwen3moe-tiny"),
               moe_directory = larger_set("qwen3moe-tiny-hf");
    if (!qwen2 || !llama || !moe || !moe_directory) return {};
    std::vector<std::filesystem::path> files;
    for (const char* name : {"tied-f16", "gqa7-q4_0", "gqa7-hd64-q5_0", "bigk-q8_0"})
        files.push_back(*qwen2 / (std::string("qwen2-") + name + ".gguf"));
    for (const char* name : {"gqa3-hd64-f16", "gqa3-q8_0"}) files.push_back(*llama / (std::string("llama-") + name + ".gguf"));
    for (const char* name : {"8x2-f32", "8x2-f16", "8x2-q8_0", "8x2-k-q4_k_m", "16x4-q8_0", "one-q8_0", "ties-q8_0"})
        files.push_back(*moe / (std::string("moe-") + name + ".gguf"));
    files.push_back(*moe_directory);
    return files;
}

void check_golden(const Golden& golden, Forward& forward, [[maybe_unused]] double limit) {
    CAPTURE(golden.name);
    CHECK(relative_error(forward.run(golden.prompt_ids), golden.logits_last) <= limit);

    forward.truncate(0);
    const std::span<const uint32_t> prompt = golden.prompt_ids;
    forward.run(prompt.first(1));
    forward.run(prompt.subspan(1, 7));
    CHECK(relative_error(forward.run(prompt.subspan(8)), golden.logits_last) <= limit);

    forward.truncate(0);
    CHECK(relative_error(logits_of_state(golden, forward, prompt), golden.logits_last) <= limit);
    forward.truncate(uint32_t(prompt.size()) - 1);
    CHECK(relative_error(logits_of_state(golden, forward, prompt.last(1)), golden.logits_last) <= limit);

    const Tokenizer tokenizer(golden.file);
    forward.truncate(0);
    std::span<const uint32_t> next = golden.greedy_prompt_ids;
    for (const uint32_t& id : golden.greedy_ids) {
        const std::span<const float> logits = forward.run(next);
        const uint32_t likeliest = greedy(tokenizer, logits);
        CAPTURE(&id - golden.greedy_ids.data());
        CAPTURE(id);
        CAPTURE(likeliest);
        CHECK((id == likeliest || (limit > exact_limit && logits[likeliest] - logits[id] <= 2 * limit * norm(logits))));
        next = {&id, 1};
    }
}

} // namespace tq
