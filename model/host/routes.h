// Which experts each token of a mixture of experts goes to, and with which weights.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq::host {

struct Routes {
    std::vector<uint32_t> ids;  // [tokens][num_experts_per_tok], of a token that with the largest weight first
    std::vector<float> weights; // as ids
};

// Chooses the experts with the largest softmax(logits[t]), of equal ones the lower id. If `normalise`, their weights are divided
// by their sum. logits: [tokens][num_experts]. A NaN counts as the largest, and makes all of its token's weights NaN.
void route(Routes& routes, std::span<const float> logits, uint32_t num_experts, uint32_t per_token, bool normalise);

// Pairs of a token and a rank (t * num_experts_per_tok + rank) by expert: those of one expert follow each other, in order.
struct ExpertGroups {
    struct Group {
        uint32_t expert, first, end; // pairs[first ... end - 1]
    };
    std::vector<Group> groups; // those that are not empty, by expert
    std::vector<uint32_t> pairs;
};
ExpertGroups group_by_expert(std::span<const uint32_t> ids, uint32_t num_experts);

} // namespace tq::host
