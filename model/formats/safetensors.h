// safetensors: a JSON header of names, types, shapes and places, then the tensors' bytes. Everything in it is hostile until
// checked.
#pragma once
#include "model/formats/model_file.h"
#include <map>
#include <string>
#include <vector>

namespace tq {

// Maps the file into `file` and returns its tensors by the names they have in it, dimensions turned to GGUF's order (fastest
// first). Throws an Error that names the file, the tensor and the numbers that do not fit: among others where the tensors overlap
// or leave bytes between them, or are of a type that ggml does not know. `metadata`: the texts that the file says of itself.
using SafetensorsMetadata = std::map<std::string, std::string>;
// `integers`: I32, which no weight is, may be among them, as safetensors_i32.
std::vector<FileTensor> read_safetensors(ModelFile& file, const std::filesystem::path& path,
                                         SafetensorsMetadata* metadata = nullptr, bool integers = false);
constexpr GgmlType safetensors_i32 = GgmlType(26);

// All tensors of model.safetensors in `directory`, or else of the files that model.safetensors.index.json names, each once.
std::vector<FileTensor> read_safetensors_directory(ModelFile& file, const std::filesystem::path& directory);

// The beginning of a file of tensors, whose bytes follow in this order. type: F32, F16, BF16 or safetensors_i32; shape: slowest
// dimension first.
struct TensorShape {
    std::string name;
    GgmlType type;
    std::vector<uint64_t> shape;

    uint64_t bytes() const;
};
std::string safetensors_header(std::span<const TensorShape> tensors, const SafetensorsMetadata& metadata);

// A file of F32 tensors, byte by byte.
struct FloatTensor {
    std::string name;
    std::vector<uint64_t> shape;
    std::span<const float> values;
};
std::string safetensors_bytes(std::span<const FloatTensor> tensors, const SafetensorsMetadata& metadata);

} // namespace tq
