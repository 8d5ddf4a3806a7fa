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

HybridGolden load_hybrid_golden(const std::filesystem::path& path, bool mtp = false);

// The files with a head for multi-token prediction.
std::vector<std::filesystem::path> mtp_golden_files();

// Checks the head's logits after the last token of the prompt and after its own next one; the mean of its logits after each
// token; and the model's own, which drafts do not change.
void check_mtp_golden(const HybridGolden& golden, Forward& forward, double limit = exact_limit);

// The prompt's logits whole, by 7 and one by one, the states after it, and the logits after each token that follows; then the
// greedy tokens. They have margins far above the limit.
void check_hybrid_golden(const HybridGolden& golden, Forward& forward, double limit = exact_limit);

} // namespace tq
