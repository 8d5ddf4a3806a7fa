// The models in the hub's cache directory: which there are, and their removal.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tq {

struct KeptModel {
    std::string request; // USER/REPOSITORY:QUANT, or USER/REPOSITORY, as -hf takes it
    std::string file;    // for --hf-file, if a quant would mean another file; empty: `request` suffices
    uint64_t bytes = 0;
    std::chrono::seconds unused{}; // time since its last use
    std::filesystem::path path{};  // of it in the cache, as open_model_file() takes it
};

struct KeptRepository {
    std::string name; // user/repository
    std::vector<KeptModel> models;
    uint64_t other_bytes = 0; // of earlier versions, downloads that were not finished, and other files
};

// Returns the repositories in the cache directory, by name. Throws Error if the directory cannot be read; none if there is
// no directory.
std::vector<KeptRepository> kept_repositories(const std::filesystem::path& cache);

// Deletes the files of the model that `request` means, USER/REPOSITORY:QUANT or USER/REPOSITORY:FILE.gguf, unless another version
// of it has them too; for USER/REPOSITORY alone all files. Returns the bytes that were deleted. Throws Error if there is no such
// model, it is being downloaded, or cannot be deleted.
uint64_t remove_kept(const std::filesystem::path& cache, const std::string& request);

} // namespace tq
