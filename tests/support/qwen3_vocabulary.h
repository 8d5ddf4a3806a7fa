// Qwen3's vocabulary with its reference cases: the part in tests/data that these need, or the whole one; and the checks that
// both must pass.
#pragma once
#include "model/files/formats/gguf.h"
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tq::test {

struct TokenizerCase {
    std::string text;
    std::vector<uint32_t> ids;
};

std::vector<TokenizerCase> read_tokenizer_cases(const std::filesystem::path& path);

// The vocabulary of tests/data: all 151936 tokens by their ids, with padding for tokens that no case needs.
ModelFile read_qwen3_vocabulary();
// The same as a GGUF file.
void write_qwen3_vocabulary(const std::filesystem::path& path);

void check_tokenizer_cases(const ModelFile& file, const std::vector<TokenizerCase>& cases);
void check_nfc_and_special_tokens(const ModelFile& file);
// Checks that random texts decode to their NFC, or without it to themselves.
void check_round_trips(const ModelFile& file);
// Checks that the vocabulary is read back from each of Hugging Face's forms.
void check_huggingface_forms(const ModelFile& file, const std::vector<TokenizerCase>& cases);

} // namespace tq::test
