// The keys of trained models, given to one of random weights. Measured on Qwen2.5-Coder and SmolLM2: before RoPE keys have a
// mean about twice as large as what varies, with a bias in the file or without; the first token's key is unlike all others, and
// every query attends to it; channels that RoPE turns slowly decide more than channels that it turns fast; near tokens decide
// most. On a model with these keys a cache of codes loses about what it loses on the two (docs/quality.md), and ten times what
// it loses on random weights alone.
#pragma once
#include "model/config.h"
#include <cstdint>
#include <span>
#include <vector>

namespace tq::test {

struct RealKeys {
    uint32_t first_token = 0; // the id of the token that is unlike others: a text is to begin with it
    double mean = 2;          // of hidden states, and so of keys: times what varies
    double first = 3;         // the size of the first token's own direction: times what varies
    double bias = 10;         // of keys in slow channels, times what varies, if the file has one
    double unequal = 2.5;     // the logarithm of the slowest pair's factor over the fastest pair's, of queries and of keys
    double deviation = 3;     // of scores
    double first_score = 6, near_score = 6; // the mean scores of the first token, and of a query's own position
    uint64_t seed = 1;
};

// The directions of hidden states, of rms 1 and orthogonal: their mean, and the first token's.
struct HiddenDirections {
    std::vector<double> mean, first;
};
HiddenDirections hidden_directions(const RealKeys& traits, uint32_t hidden_size);

// embedding: [vocabulary][hidden_size], whose rows have a norm near 1. Throws Error if there is no such token.
void give_mean(const RealKeys& traits, const HiddenDirections& directions, std::span<float> embedding, uint32_t hidden_size);

// The matrices of a layer's attention: rows of channels, of norm 1. neighbours: RoPE mixes rows 2 i and 2 i + 1, else i and
// i + head_dim / 2.
struct AttentionTensors {
    std::vector<float>&q, &k, &v;
    std::vector<float>* k_bias;
    bool neighbours;
};
void give_real_keys(const RealKeys& traits, const HiddenDirections& directions, const Config& config, uint32_t layer,
                    const AttentionTensors& tensors);

} // namespace tq::test
