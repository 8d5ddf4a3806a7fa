// A model as a GGUF file in other weight formats: which keys and tensors the file has, and the bytes of each tensor.
#pragma once
#include "base/error.h"
#include "base/thread_pool.h"
#include "model/files/formats/gguf_writer.h"
#include "model/model.h"
#include "model/weights/mixes.h"
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// Weight of each column's error in a matrix, by the matrix's name; for a stack of experts one list after the other.
using Importances = std::map<std::string, std::vector<float>, std::less<>>;

struct ConvertedTensor {
    Tensor from;
    std::vector<uint64_t> ne; // fastest dimension first
    GgmlType type;            // in the new file

    uint64_t bytes() const { return row_bytes(type, from.cols) * from.rows; }
};

struct ConversionOptions {
    const Mix* mix = nullptr;
    MixOptions mixed = {};
    bool allow_requantize = false; // of matrices that are quantised in another format already
};

struct Conversion {
    GgufWriter writer; // of the keys, and of the tensors in this order
    std::vector<ConvertedTensor> tensors;
    std::vector<std::string>
        notes; // what the user should know: settings that llama.cpp does not follow, matrices in another format
};

// Plans the file. All keys of a GGUF file are copied, except those of its division into parts. The keys of a Hugging Face
// directory are those that llama.cpp's converter writes. `model` must outlive the result. Throws Error if a tensor cannot be
// converted.
Conversion plan_conversion(const Model& model, const ConversionOptions& options);

// Called with the number of bytes of the new file that are done; returning false stops.
using ConversionProgress = std::function<bool(uint64_t bytes)>;

// Thrown for a weight that is NaN or infinite, or that a format does not hold.
struct WrongWeight : Error {
    using Error::Error;
};

// Makes the bytes of a tensor in pieces, one after the other, and gives them to `write`. Returns their checksum (that of the
// pieces' checksums); nothing if on_progress stopped it. They are equal for every number of threads. Throws
// WrongWeight naming the tensor, an Error if the file was truncated, and what `write` throws.
std::optional<uint64_t> convert_tensor(ThreadPool& pool, const ConvertedTensor& tensor, const Importances& importances,
                                       const std::function<void(std::span<const std::byte>)>& write,
                                       const ConversionProgress& on_progress);

// The same checksum of bytes that were written.
uint64_t conversion_checksum(const ConvertedTensor& tensor, std::span<const std::byte> bytes);

// Squares summed over a tensor: of the differences between the original and its copy, and of the original.
struct ConversionError {
    double error = 0, norm = 0;
    uint64_t elements = 0;

    double relative() const; // root mean square of the differences / that of the original; 0 if all of it is 0
};
ConversionError conversion_error(ThreadPool& pool, const ConvertedTensor& tensor, std::span<const std::byte> bytes);

} // namespace tq
