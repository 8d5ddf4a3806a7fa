// make_scale_rule_table: the cost of each scale rule and rotation of the TurboQuant types, as a Markdown table: the mean
// KL divergence of its next-token distributions from those with an f32 cache, for keys and values, keys alone and values alone.
// On the CPU, token by token, so that every position attends to the cache of all before it.
//   tools/demo-model/corpus.py --seed 77 --count 6 > text.txt
//   make_scale_rule_table -m tools/demo-model/demo-q8_0.gguf text.txt
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/model.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>

namespace {

using namespace tq;

using Documents = std::vector<std::vector<uint32_t>>;

// The texts of a file, which <|endoftext|> separates.
Documents read_documents(const Tokenizer& tokenizer, const std::string& path, size_t tokens) {
    std::ifstream file(path, std::ios::binary);
    std::string all(std::istreambuf_iterator<char>(file), {});
    if (all.empty()) fail("{} cannot be read or is empty", path);
    Documents out;
    constexpr std::string_view end = "<|endoftext|>";
    for (size_t at = 0, next = 0; at < all.size(); at = next) {
        next = std::min(all.find(end, at), all.size());
        auto ids = tokenizer.encode(all.substr(at, next - at));
        next = std::min(next + end.size(), all.size());
        ids.resize(std::min(ids.size(), tokens));
        if (ids.size() > 16) out.push_back(std::move(ids));
    }
    return out;
}

std::vector<double> log_probabilities(std::span<const float> logits) {
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float v : logits) sum += std::exp(double(v) - largest);
    std::vector<double> out;
    for (const float v : logits) out.push_back(double(v) - largest - std::log(sum));
    return out;
}

// The data by which runs of the documents are compared: for every position the distribution of the next token.
using Distributions = std::vector<std::vector<double>>;

Distributions distributions(const Model& model, const Documents& documents, const KvOptions& kv) {
    uint32_t longest = 1;
    for (const auto& ids : documents) longest = std::max(longest, uint32_t(ids.size()));
    const auto forward = make_cpu_forward(model.config, model.weights, {kv, longest, 1});
    Distributions out;
    for (const auto& ids : documents) {
        forward->truncate(0);
        for (const uint32_t id : ids) out.push_back(log_probabilities(forward->run({&id, 1})));
    }
    return out;
}

struct Difference {
    double mean = 0, standard_error = 0, p99 = 0, same_top = 0;
};

Difference difference(const Distributions& right, const Distributions& other) {
    std::vector<double> divergences;
    double sum = 0, squares = 0, same = 0;
    for (size_t i = 0; i < right.size(); i++) {
        double divergence = 0;
        for (size_t t = 0; t < right[i].size(); t++) divergence += std::exp(right[i][t]) * (right[i][t] - other[i][t]);
        divergences.push_back(divergence);
        sum += divergence;
        squares += divergence * divergence;
        same += std::ranges::max_element(right[i]) - right[i].begin() == std::ranges::max_element(other[i]) - other[i].begin();
    }
    const auto n = double(right.size());
    std::ranges::sort(divergences);
    return {sum / n, std::sqrt((squares / n - sum * sum / n / n) / n), divergences[size_t(n * 0.99)], same / n};
}

struct Row {
    std::string cache, part;
    KvOptions kv;
    Difference difference;
};

std::vector<Row> rows() {
    std::vector<Row> out;
    const auto add = [&](KvType k, KvType v, KvType type, const char* part, RotationKind rotation, ScaleRule rule) {
        KvOptions kv;
        kv.k = k;
        kv.v = v;
        kv.rotation = rotation;
        kv.scale_rule = rule;
        out.push_back({name(type), part, kv, {}});
    };
    for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2})
        for (const RotationKind rotation : {RotationKind::wht, RotationKind::haar})
            for (const ScaleRule rule : {ScaleRule::norm, ScaleRule::least_squares, ScaleRule::unbiased}) {
                add(type, type, type, "k and v", rotation, rule);
                add(type, KvType::f32, type, "k", rotation, rule);
                add(KvType::f32, type, type, "v", rotation, rule);
            }
    for (const KvType type : {KvType::q8_0, KvType::q4_0, KvType::f16}) {
        const KvOptions defaults;
        add(type, type, type, "k and v", defaults.rotation, defaults.scale_rule);
    }
    return out;
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app("Measures the scale rules and rotations of the TurboQuant types on a model and a text.");
    std::string text, path;
    size_t tokens = 2048;
    app.add_option("text", text, "file of texts, separated by <|endoftext|>")->required();
    app.add_option("-m,--model", path, "GGUF file")->required();
    app.add_option("--tokens", tokens, "most tokens of a text")->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    const Model model = load_model(path);
    const Documents documents = read_documents(model.tokenizer, text, tokens);
    const Distributions right = distributions(model, documents, {KvType::f32, KvType::f32});
    fmt::print("{} texts, {} tokens\n\n", documents.size(), right.size());
    std::vector<Row> all = rows();
    std::atomic<size_t> next = 0;
    {
        std::vector<std::jthread> threads;
        for (uint32_t i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
            threads.emplace_back([&] {
                for (size_t at; (at = next++) < all.size();)
                    all[at].difference = difference(right, distributions(model, documents, all[at].kv));
            });
    }
    fmt::print("| type | of | rotation | scale | KL divergence, nats | 99th percentile | same top token "
               "|\n|---|---|---|---|---|---|---|\n");
    for (const Row& row : all)
        fmt::print("| {} | {} | {} | {} | {:.6f} +- {:.6f} | {:.5f} | {:.2f} % |\n", row.cache, row.part, name(row.kv.rotation),
                   name(row.kv.scale_rule), row.difference.mean, row.difference.standard_error, row.difference.p99,
                   row.difference.same_top * 100);
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_scale_rule_table: {}\n", e.what());
    return 1;
}
