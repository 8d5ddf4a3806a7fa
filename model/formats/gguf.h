// GGUF v2/v3 (ggml's docs/gguf.md): a memory-mapped file of typed metadata and tensors. Everything in it is hostile until
// checked: open() either returns a file whose every tensor lies inside it, or throws an Error that names what is wrong.
#pragma once
#include "base/mapped_file.h"
#include "model/formats/blocks.h"
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tq {

struct GgufTensor {
    std::string name;
    GgmlType type;                   // one ggml knows; block_format(type) tells whether we can decode it
    std::array<uint64_t, 4> ne;      // elements per dimension, fastest first; unused dimensions are 1
    std::span<const std::byte> data; // inside the mapping, 8-byte aligned; its size is row bytes times rows
};

class Gguf {
  public:
    // Scalars are widened (every unsigned to uint64_t, signed to int64_t, float to double); arrays keep their kind, those
    // of booleans become uint64_t. Text points into the mapping and may hold any bytes.
    using Value = std::variant<uint64_t, int64_t, double, bool, std::string_view, std::vector<uint64_t>, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string_view>>;

    // Throws an Error that names the file, the key or tensor, and the numbers that do not fit.
    static Gguf open(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return path_; }
    const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }
    const std::vector<GgufTensor>& tensors() const { return tensors_; }

    // nullptr when absent
    const Value* find(std::string_view key) const;
    const GgufTensor* find_tensor(std::string_view name) const;

    // Typed reads. The form without a fallback throws an Error naming the key when it is absent; all throw on a wrong type.
    uint64_t integer(std::string_view key) const;
    uint64_t integer(std::string_view key, uint64_t fallback) const;
    double real(std::string_view key) const;
    double real(std::string_view key, double fallback) const;
    bool boolean(std::string_view key, bool fallback) const;
    std::string_view text(std::string_view key) const;
    std::string_view text(std::string_view key, std::string_view fallback) const;
    const std::vector<std::string_view>& strings(std::string_view key) const;

  private:
    Gguf(std::filesystem::path path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}

    std::filesystem::path path_;
    MappedFile file_;
    std::map<std::string, Value, std::less<>> metadata_;
    std::vector<GgufTensor> tensors_;
};

} // namespace tq
