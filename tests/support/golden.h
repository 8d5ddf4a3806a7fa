// The tiny random models with logits from a float64 forward pass, and the comparison that both forward passes must pass.
#pragma once
#include "model/files/formats/open.h"
#include "model/forward.h"
#include "model/host/routes.h"
#include "model/weights/weights.h"
#include "tests/support/relative_error.h"
#include "tests/support/test_data.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <optional>

namespace tq {

class Tokenizer;

// A part of the larger set of test data, which is beside the repository; not every machine has it, and a test of a
// *_larger_set_test.cpp then skips with a message.
std::optional<std::filesystem::path> larger_set(const char* name);

struct Golden {
    std::string name;
    ModelFile file;
    Config config;
    Weights weights;
    std::vector<uint32_t> prompt_ids, greedy_prompt_ids, greedy_ids;
    std::vector<float> logits_last;
    std::vector<host::Routes> router; // of each layer, for the prompt's tokens; only of mixtures
};

// A GGUF file with its NAME.json, or a directory from Hugging Face with `answers` in it.
// mtp: with its head for multi-token prediction.
Golden load_golden(const std::filesystem::path& path, const char* answers = "expected.json", bool mtp = false);

// A GGUF file with a matrix of every weight format, a directory from Hugging Face in bf16, its embedding tied, and a model of
// Llama 3's kind with scaled frequencies of RoPE.
std::vector<std::filesystem::path> golden_files();

// The same directory with its weights quantised at load as `--weights` does, and the logits of such weights.
Golden golden_quantised(GgmlType type);

// The files of the larger set: a model of every weight format, and of mixtures.
std::vector<std::filesystem::path> larger_set_golden_files();

// The larger set's models of other architectures; qwen2-bigk has biases of keys of 40 to 160, one of moe-one's experts takes
// every token, and moe-ties has equal rows in its routers.
std::vector<std::filesystem::path> other_architectures();

// The most likely token that is not padding of the vocabulary.
uint32_t greedy(const Tokenizer& tokenizer, std::span<const float> logits);

// The prompt's last logits and state within the limit, in one block and in blocks of uneven sizes, and after each token of the
// greedy continuation the next one: the most likely, or, with a greater limit than exact_limit, one that two errors of that
// size explain.
void check_golden(const Golden& golden, Forward& forward, double limit = exact_limit);

} // namespace tq
