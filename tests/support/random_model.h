// Models of any shape and architecture with random weights: for tests, and for measurements if no trained model is available.
#pragma once
#include "model/config.h"
#include <filesystem>

namespace tq::test {

struct RandomModel {
    Config config;
    GgmlType type = GgmlType::Q8_0; // of the matrices; Q8_0 instead of a K-quant if the row length is not a multiple of 256
    bool tied = true;
    uint64_t seed = 1;
    // A GGUF file whose tokenizer.* keys are copied; empty: a byte-level vocabulary without merges, with ChatML's tokens.
    std::filesystem::path vocabulary;
    // The head for multi-token prediction of a hybrid (config.nextn_predict_layers) is always right, but after `wrong` of 256
    // ids: layers add nothing, so that a token depends on the one before it alone, and the head passes that on. All tokens are
    // likely_ids.
    bool perfect_mtp = false;
    uint32_t wrong = 0;
    bool sparse = false; // matrices of layers, but for routers, are zeros and written as holes: a file as large as the real one
};

// A small shape: hidden 64, ffn 96, 2 layers, 4 heads on 2 kv heads, head_dim 128, vocab 320, theta 1e6, eps 1e-6; of a mixture
// of experts, 3 of 6 experts of 32. With config.nextn_predict_layers 1 a file has a head for multi-token prediction. A hybrid has
// 3 layers: the second has attention with head_dim 256 and RoPE on 64 channels, 2 key heads with 4 value heads, and, as a
// mixture, a shared expert of 32.
Config small_config(const Architecture& architecture = architectures[0]);

// Writes the model, tensor by tensor and in little memory. Rows of a matrix have a norm near 1, norms are near 1. The same
// arguments give the same bytes on every machine. Throws an Error when the vocabulary does not fit or the disk is full.
void write_random_model(const std::filesystem::path& path, const RandomModel& model);

} // namespace tq::test
