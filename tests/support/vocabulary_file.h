// Small vocabulary-only GGUF files for tests, held key by key so that every key can also be left out or damaged.
#pragma once
#include "model/files/formats/model_file.h"
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tq::test {

ModelFile open_keys(const std::map<std::string, ModelFile::Value>& keys);

// The 256 byte tokens in Qwen's order; merges and added tokens follow as a test adds them.
struct VocabularyFile {
    std::vector<std::string> tokens, merges;
    std::vector<int64_t> types;

    VocabularyFile() {
        for (const bool printing : {true, false})
            for (int byte = 0; byte < 256; ++byte)
                if (prints(byte) == printing) add(letter(byte), 1);
    }

    static bool prints(int byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte != 173); }
    // GPT-2's character for a byte, in UTF-8.
    static std::string letter(int byte) {
        int c = byte;
        if (!prints(byte)) {
            c = 0x100;
            for (int b = 0; b < byte; ++b) c += !prints(b);
        }
        if (c < 0x80) return {char(c)};
        return {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};
    }
    static std::string letters(std::string_view bytes) {
        std::string out;
        for (const char byte : bytes) out += letter(uint8_t(byte));
        return out;
    }

    uint32_t add(const std::string& token, int64_t type) {
        tokens.push_back(token);
        types.push_back(type);
        return uint32_t(tokens.size() - 1);
    }
    // The halves as plain bytes; adds the merged token too.
    uint32_t merge(std::string_view left, std::string_view right) {
        merges.push_back(letters(left) + " " + letters(right));
        return add(letters(left) + letters(right), 1);
    }

    std::map<std::string, ModelFile::Value> keys() const {
        return {{"tokenizer.ggml.model", std::string_view("gpt2")},
                {"tokenizer.ggml.pre", std::string_view("qwen2")},
                {"tokenizer.ggml.tokens", std::vector<std::string_view>(tokens.begin(), tokens.end())},
                {"tokenizer.ggml.token_type", types},
                {"tokenizer.ggml.merges", std::vector<std::string_view>(merges.begin(), merges.end())}};
    }
    ModelFile open() const { return open_keys(keys()); }
};

// ChatML's added tokens after a few merges, the scheme of small models.
VocabularyFile small_vocabulary();

} // namespace tq::test
