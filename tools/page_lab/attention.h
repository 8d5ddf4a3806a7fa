// Causal attention over exact and coded vectors.
#pragma once
#include "model/config.h"
#include "tools/page_lab/forward.h"

namespace tq::page_lab {

// [tokens][kv heads][dim] each.
struct SeenVectors {
    std::span<const float> k_exact, k_coded, v_exact, v_coded;
};

// y[t][head] = softmax(q . K) V; a query reads exact vectors from window.first(t) on, and the first token's. q, y:
// [tokens][heads][dim]
void attention(std::span<float> y, std::span<const float> q, const SeenVectors& seen, const Config& config, const Window& window);

} // namespace tq::page_lab
