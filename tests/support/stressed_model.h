// Models whose keys and values are hard to quantise, made from others with the same output: channels are scaled or mixed at
// random on one side of the cache, and by the inverse on the other, as in trained models of this kind.
#pragma once
#include "model/model.h"
#include "tests/support/real_keys.h"
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace tq::test {

// `count` channels at random, of keys pairs of channels that RoPE mixes, are multiplied by `factor`.
struct Outliers {
    uint32_t count = 0;
    double factor = 1;
};

// Changes of each chosen layer; in a hybrid only layers with attention are chosen. Spreads: factors are exp(spread * n), n from a
// normal distribution, or from Student's t with `tails` degrees of freedom, kept within e^-8 and e^8.
struct WeightStress {
    // Keys, pair by pair: k_norm is multiplied and q_norm divided, for all heads of a layer alike; in architectures without
    // these norms the rows and biases of attn_k are multiplied and of attn_q divided, by factors of each kv head.
    double key_spread = 0;
    Outliers key_outliers;
    // Values of each kv head, channel by channel: the rows and biases of attn_v are multiplied, and divided the columns of
    // attn_output that belong to the query heads of its group.
    double value_spread = 0;
    Outliers value_outliers;
    // Values along random orthogonal directions of each kv head in place of channels, which no factors of channels undo.
    double value_directions = 0;
    uint32_t tails = 0;
    std::vector<uint32_t> layers; // empty: all
    uint64_t seed = 1;
    // Afterwards, values of each kv head and channel are divided by g, and attn_output's columns multiplied: g^2 is the rms of
    // the channel's values, were hidden states even, over that of the columns. Of all layers.
    bool balance_values = false;
    // First of all: the keys of trained models, for a model of random weights (make_random_model). Unlike the rest this makes
    // another model, which is to be compared with itself.
    std::optional<RealKeys> real_keys;
};

// Returns the model of the file `from` with stressed weights. Tensors that change are F32 there, so that scores and outputs of
// attention change by the rounding of weights only. Throws Error: what load_model() does, a weight format that cannot be decoded,
// a layer or a number of channels that the model does not have, a recurrent layer by its number, directions of values behind
// gates, factors that are not finite or 0, and real keys in a model with norms of keys, with gates or with recurrent layers.
Model make_stressed_model(const std::filesystem::path& from, const WeightStress& stress);

// Writes it as the GGUF file `to`; `from` is GGUF, too. Throws Error.
void write_stressed_model(const std::filesystem::path& from, const std::filesystem::path& to, const WeightStress& stress);

} // namespace tq::test
