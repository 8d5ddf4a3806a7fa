// Texts with the vectors that float64 arithmetic gives them, of two models of the larger set, and their comparison.
#pragma once
#include "model/model.h"
#include "tests/support/golden.h"
#include <map>
#include <nlohmann/json.hpp>

namespace tq {

struct GoldenEmbedding {
    std::string text;
    std::vector<uint32_t> ids;                       // with the token that ends a text
    std::map<uint32_t, std::vector<double>> vectors; // by their dimensions
};

struct GoldenEmbeddings {
    Model model;
    std::vector<GoldenEmbedding> texts;
};

nlohmann::json read_json(const std::filesystem::path& path);

// The first model says how texts end and are pooled, the other does not. Empty, and the test skipped, without the larger set.
std::vector<GoldenEmbeddings> golden_embeddings();

// The greatest error of a number of a vector that was computed in fp32: the files give seven decimals.
constexpr double written_decimals = 1e-5;

// Each number within the limit, and the cosine of a vector whose length has that error.
void check_vector(std::span<const float> got, const std::vector<double>& expected, double limit = written_decimals);

void check_embeddings(const GoldenEmbeddings& golden, Forward& forward, double limit = written_decimals);

} // namespace tq
