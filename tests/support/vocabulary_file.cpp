#include "tests/support/vocabulary_file.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include <filesystem>
#include <fstream>
#include <random>

namespace tq::test {

ModelFile open_keys(const std::map<std::string, ModelFile::Value>& keys) {
    GgufWriter writer;
    for (const auto& [key, value] : keys) writer.set(key, value);
    const auto path =
        std::filesystem::temp_directory_path() / ("tq-vocabulary-" + std::to_string(std::random_device()()) + ".gguf");
    struct Remover {
        const std::filesystem::path& path;
        ~Remover() {
            std::error_code busy; // Windows keeps mapped files; elsewhere the mapping outlives the name
            std::filesystem::remove(path, busy);
        }
    } remover{path};
    std::ofstream(path, std::ios::binary) << writer.zeros();
    return read_gguf(path);
}

VocabularyFile small_vocabulary() {
    VocabularyFile file;
    for (const auto& [left, right] :
         {std::pair("a", "a"), {"aa", "aa"}, {"u", "s"}, {"e", "r"}, {"us", "er"}, {" ", " "}, {"\n", "\n"}})
        file.merge(left, right);
    for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) file.add(control, 3);
    for (const char* tag : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) file.add(tag, 4);
    file.add("[PAD]", 5);
    return file;
}

} // namespace tq::test
