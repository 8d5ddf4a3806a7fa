// A weight matrix of a model: its rows are in a mapped file, or made on demand.
#pragma once
#include "model/files/formats/blocks.h"
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// Makes the rows of a tensor that no file contains in this form: a file's rows in another format, or random ones.
class RowSource {
  public:
    virtual ~RowSource() = default;
    // to[count * row bytes] = rows first .. first + count - 1. Several threads may call it at once.
    virtual void make_rows(std::span<std::byte> to, uint32_t first, uint32_t count) const = 0;
    // Returns these rows if they lie in a file in this form, one after the other; empty if they must be made.
    virtual std::span<const std::byte> mapped_rows(uint32_t, uint32_t) const { return {}; }
};

// A row-major (rows, cols) matrix in a weight format, or a vector (rows = 1).
struct Tensor {
    std::string name;
    GgmlType type;
    uint32_t rows, cols;
    std::span<const std::byte> data; // all rows, not aligned; empty if `source` makes them
    std::shared_ptr<const RowSource> source = nullptr;
    // NVFP4: factors of the blocks' values, a number for each of as many equal parts of the rows (the matrices of a stack).
    // Empty: 1.
    std::vector<float> factors = {};
    bool of_mtp = false;                               // of the head for multi-token prediction, which a model can do without
    std::shared_ptr<const std::string> file = nullptr; // the model's path, for errors
    std::optional<GgmlType> file_type = {}; // the format in the file, if the tensor is of one, which `type` may replace

    uint64_t row_bytes() const { return tq::row_bytes(type, cols); }
    uint64_t bytes() const { return row_bytes() * rows; }
    // The same in the file.
    GgmlType stored_type() const { return file_type.value_or(type); }
    uint64_t stored_bytes() const { return tq::row_bytes(stored_type(), cols) * rows; }
    // Whether no row need be made: all are in one place, or each matrix of a stack in its own.
    bool is_mapped() const { return !source || !source->mapped_rows(0, 1).empty(); }

    // Call it only if the rows are in memory.
    std::span<const std::byte> row(uint32_t r) const { return data.subspan(r * row_bytes(), row_bytes()); }
    // Returns rows first .. first + count - 1 as a matrix, if the rows are in memory, or of one matrix of a stack.
    Tensor slice(uint32_t first, uint32_t count) const {
        return {.name = name,
                .type = type,
                .rows = count,
                .cols = cols,
                .data = source ? source->mapped_rows(first, count) : data.subspan(first * row_bytes(), count * row_bytes()),
                .factors = row_factors(first, factors.empty() ? 0 : 1)};
    }

    // Returns the factor of row r.
    float factor(uint32_t r) const { return factors.empty() ? 1 : factors[size_t(r) * factors.size() / rows]; }
    void apply_factor(uint32_t r, std::span<float> y) const; // y[cols] *= that of row r
    // Returns the factors of rows first .. first + count - 1, one for each row; empty: 1.
    std::vector<float> row_factors(uint32_t first, uint32_t count) const;

    // Returns rows first .. first + count - 1, in place or made in `scratch`, which the result may point into.
    std::span<const std::byte> read(uint32_t first, uint32_t count, std::vector<std::byte>& scratch) const;
    // y[cols] = the values of row r, fp32.
    void decode(uint32_t r, std::span<float> y, std::vector<std::byte>& scratch) const;
};

// Makes one row of a tensor. Several threads may call it at once.
using MakeRow = std::function<void(std::span<std::byte> to, uint32_t row)>;
// Returns a tensor whose rows are made by `make_row` each time that they are read.
Tensor made_tensor(std::string name, GgmlType type, uint32_t rows, uint32_t cols, MakeRow make_row);

// Returns the values of a whole vector or small matrix, fp32.
std::vector<float> to_floats(const Tensor& tensor);

} // namespace tq
