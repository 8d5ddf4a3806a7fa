// safetensors: a JSON header of names, types, shapes and offsets, then the tensors' bytes. The content is untrusted until
// checked.
#pragma once
#include "model/files/formats/model_file.h"
#include <map>
#include <string>
#include <vector>

namespace tq {

// Maps the file into `file` and returns its tensors by their names in it, dimensions in GGUF's order (fastest first). Throws an
// Error that names the file, the tensor and the numbers that do not fit: among others if the tensors overlap or leave bytes
// between them, or have a type that ggml does not know. `metadata`: the texts under `__metadata__`.
using SafetensorsMetadata = std::map<std::string, std::string>;
// `integers`: I32, which is not a weight type, is accepted as safetensors_i32.
std::vector<FileTensor> read_safetensors(ModelFile& file, const std::filesystem::path& path,
                                         SafetensorsMetadata* metadata = nullptr, bool integers = false);
constexpr GgmlType safetensors_i32 = GgmlType(26);

// Reads all tensors of model.safetensors in `directory`, else of the files in model.safetensors.index.json, each once.
std::vector<FileTensor> read_safetensors_directory(ModelFile& file, const std::filesystem::path& directory);

// safetensors_header() returns the header of a file of these tensors, whose bytes follow in this order. type: F32, F16, BF16 or
// safetensors_i32; shape: slowest dimension first.
struct TensorShape {
    std::string name;
    GgmlType type;
    std::vector<uint64_t> shape;

    uint64_t bytes() const;
};
std::string safetensors_header(std::span<const TensorShape> tensors, const SafetensorsMetadata& metadata);

// safetensors_bytes() returns the whole file of these F32 tensors.
struct FloatTensor {
    std::string name;
    std::vector<uint64_t> shape;
    std::span<const float> values;
};
std::string safetensors_bytes(std::span<const FloatTensor> tensors, const SafetensorsMetadata& metadata);

} // namespace tq
