// The tiny hybrids with logits and states from a float64 forward pass, and what every forward pass must give of them.
#pragma once
#include "tests/support/golden.h"
#include <nlohmann/json.hpp>

namespace tq {

struct HybridGolden {
    Golden model;
    nlohmann::json json;

    std::vector<float> floats(const char* key) const { return json.at(key); }
};

// The files and directories of the larger set: every architecture, ratio of heads, weight format and packing.
std::vector<std::filesystem::path> hybrid_golden_files();

HybridGolden load_hybrid_golden(const std::filesystem::path& path);

// The prompt's logits whole, by 7 and one by one, the states after it, and the logits after each token that follows; then the
// greedy tokens. They have margins far above the limit.
void check_hybrid_golden(const HybridGolden& golden, Forward& forward, double limit = exact_limit);

} // namespace tq
