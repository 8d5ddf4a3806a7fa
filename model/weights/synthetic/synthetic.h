// Models of Qwen3's true shapes with random weights, for tests and measurements that need no file: --synthetic qwen3-8b:q4_k_m.
// A hybrid's name with +mtp is that of the shape with a head for multi-token prediction: qwen3.5-0.8b+mtp.
#pragma once
#include "model/model.h"

namespace tq {

struct SyntheticModel {
    std::string name; // "qwen3-8b:q4_k_m"
    Config config;    // with the requested number of layers
    uint32_t full_depth;
    bool tied;
    std::string mixture; // "q4_k_m"
};

// Parses SHAPE[+mtp][:MIXTURE], in any case; the default mixture is q8_0. `layers`: only the first of them; 0: all. Throws an
// Error that lists the shapes, or the mixtures, when there is none of that name.
SyntheticModel parse_synthetic(std::string_view text, uint32_t layers = 0);

// Returns a model whose rows are made when they are read; see synthetic_rows.h for their values. Their standard deviation, 1 /
// sqrt(cols), keeps activations near 1 at any depth. The first layers of a cut model are those of the whole one. The vocabulary
// is one token per byte, ChatML's, and unused ones.
Model make_synthetic(const SyntheticModel& model, uint32_t seed = 1);

// Returns the format of one matrix of a mixture, as llama.cpp's quantiser mixes them: the output head (the embedding if it is
// tied) is Q6_K in every K mixture, and in q4_k_m and q5_k_m some layers' attn_v and ffn_down are, too; routers are F32. `name`:
// "attn_v".
GgmlType mixture_type(const SyntheticModel& model, std::string_view name, uint32_t layer);

// Writes the tokenizer.* keys of a vocabulary of one token per byte, ChatML's, and [PADn] up to vocab_size.
void put_synthetic_vocabulary(ModelFile& file, uint32_t vocab_size);

} // namespace tq
