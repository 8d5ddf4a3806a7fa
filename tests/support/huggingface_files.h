// Writes well-formed models in Hugging Face's format for tests, held as JSON so that tests can change any part.
#pragma once
#include "model/config.h"
#include "model/files/formats/blocks.h"
#include "tests/support/temporary_file.h"
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tq::test {

using nlohmann::json;

struct SafetensorsWriter {
    json header = json::object();
    std::string data;

    // shape: slowest dimension first
    void add(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape, const std::string& bytes);
    std::string bytes() const { return bytes(header.dump()); }
    std::string bytes(const std::string& header_text) const;
};

// A directory's files: JSON by name, and texts and bytes by name.
struct HuggingFaceFiles {
    std::map<std::string, json> documents;
    std::map<std::string, std::string> texts;
    SafetensorsWriter weights; // model.safetensors, unless it is empty

    void write(const TemporaryDirectory& directory) const;
};

// A model of one layer, hidden 32, ffn 64, one head of 64, 288 rows of embedding in BF16, tied; a byte-level vocabulary with
// three merges and four added tokens; every weight 0.
HuggingFaceFiles small_huggingface_model();

// Reads the configuration, of a vocabulary of one token. Throws Error as read_huggingface_config() and read_config() do.
Config config_of(const HuggingFaceFiles& files);

// A tokenizer.json of these tokens: `types` as in GGUF. Merges as texts, or as pairs.
json tokenizer_json(const std::vector<std::string>& tokens, const std::vector<int64_t>& types,
                    const std::vector<std::string>& merges, bool merges_as_pairs = false);

// The other form: vocab.json, merges.txt and the tokenizer_config.json that goes with them.
void add_vocab_and_merges(HuggingFaceFiles& files, const std::vector<std::string>& tokens, const std::vector<int64_t>& types,
                          const std::vector<std::string>& merges);

} // namespace tq::test
