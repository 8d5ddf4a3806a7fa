// Chooses the files of a repository that make up the requested model.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tq {

struct HubFile {
    std::string path;  // in the repository; untrusted before is_safe_file_name()
    uint64_t size = 0; // bytes
    std::string oid;   // SHA-256 of its bytes, or for small files SHA-1 of the git blob; empty for a file found in the cache
};

struct HubChoice {
    std::vector<HubFile> files; // all must be present
    std::string model;          // the one to open; empty: their directory
};

// The parts of a request.
struct HubTarget {
    std::string repository, quant, file; // quant and file may be empty
};

// Chooses as llama.cpp does: the file by its name; else the first GGUF file of the quant, by default Q4_K_M, then Q8_0, then
// any; with all parts of a split file. For a repository without GGUF files: its safetensors, configuration and tokenizer.
// Throws Error that lists the quants there are, and when a part is missing or a name would lead out of the directory.
HubChoice choose_files(const std::vector<HubFile>& files, const HubTarget& target);

// Returns every model among the files that has all of its parts: each GGUF file, or the safetensors.
std::vector<HubChoice> all_models(const std::vector<HubFile>& files);

// Returns the quant in a file's name, its last word: Q4_K_M of NAME-Q4_K_M-00001-of-00002.gguf; with Unsloth's UD- before it,
// UD-Q4_K_XL.
std::string quant_of(const std::string& path);

} // namespace tq
