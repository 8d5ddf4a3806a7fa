#include "tests/support/embeddings.h"
#include <cmath>
#include <doctest/doctest.h>
#include <fstream>

namespace tq {

nlohmann::json read_json(const std::filesystem::path& path) {
    nlohmann::json json;
    std::ifstream(path) >> json;
    return json;
}

std::vector<GoldenEmbeddings> golden_embeddings() {
    std::vector<GoldenEmbeddings> all;
    const auto folder = larger_set("qwen3-embedding");
    if (!folder || !larger_set("qwen3-tiny")) return all;
    for (const char* name : {"emb-f16-vectors.json", "tiny-f32-vectors.json"}) {
        const nlohmann::json json = read_json(*folder / name);
        GoldenEmbeddings golden{load_model(*folder / json.at("model").get<std::string>()), {}};
        for (const auto& one : json.at("cases")) {
            GoldenEmbedding text{one.at("text"), one.at("ids"), {}};
            text.vectors[golden.model.config.hidden_size] = one.at("vector").get<std::vector<double>>();
            for (const auto& [dimensions, vector] : one.at("mrl").items())
                text.vectors[uint32_t(std::stoul(dimensions))] = vector.get<std::vector<double>>();
            golden.texts.push_back(std::move(text));
        }
        all.push_back(std::move(golden));
    }
    return all;
}

void check_vector(std::span<const float> got, const std::vector<double>& expected, double limit) {
    REQUIRE(got.size() == expected.size());
    double product = 0, squares = 0, error = 0;
    for (size_t i = 0; i < got.size(); i++) {
        product += got[i] * expected[i];
        squares += expected[i] * expected[i];
        error = std::max(error, std::abs(got[i] - expected[i]));
    }
    CHECK(product / std::sqrt(squares) == doctest::Approx(1).epsilon(std::max(1e-7, limit * limit)));
    CHECK(error <= limit);
}

void check_embeddings(const GoldenEmbeddings& golden, Forward& forward, double limit) {
    for (const GoldenEmbedding& text : golden.texts) {
        CAPTURE(text.text);
        std::vector<float> state;
        const Span span{0, text.ids, Span::Logits::hidden};
        forward.truncate(0);
        forward.run({&span, 1}, [&](size_t, uint32_t i, std::span<const float> values) {
            CHECK(i + 1 == text.ids.size());
            state.assign(values.begin(), values.end());
        });
        for (const auto& [dimensions, vector] : text.vectors) {
            double squares = 0;
            for (uint32_t i = 0; i < dimensions; i++) squares += double(state[i]) * state[i];
            std::vector<float> unit;
            for (uint32_t i = 0; i < dimensions; i++) unit.push_back(float(state[i] / std::sqrt(squares)));
            check_vector(unit, vector, limit);
        }
    }
}

} // namespace tq
