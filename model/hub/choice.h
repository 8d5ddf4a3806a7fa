// Which files of a repository make up the model that was asked for.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tq {

struct HubFile {
    std::string path;  // in the repository; not to be believed before is_safe_file_name()
    uint64_t size = 0; // bytes
    std::string oid;   // SHA-256 of its bytes, or for small files SHA-1 of them as a git blob; empty of a file found in the cache
};

struct HubChoice {
    std::vector<HubFile> files; // to be there, all of them
    std::string model;          // what to open: one of them; empty: their directory
};

// A request taken apart.
struct HubTarget {
    std::string repository, quant, file; // quant and file may be empty
};

// As llama.cpp chooses: the file by its name; else the first GGUF file of the quant, by default Q4_K_M, then Q8_0, then any; with
// all parts of a split file. A repository without GGUF files: its safetensors, configuration and tokenizer. Throws Error that
// lists the quants there are, and when a part is missing or a name would lead out of the directory.
HubChoice choose_files(const std::vector<HubFile>& files, const HubTarget& target);

} // namespace tq
