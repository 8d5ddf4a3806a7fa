// Writes GGUF files: the keys, the list of tensors, and the offset of each tensor's bytes. It records the position of each number
// of the header, so that tests can damage it.
#pragma once
#include "model/files/formats/gguf.h"
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// A number in a header: a length, a count, a type, a dimension, an offset.
struct GgufField {
    std::string what;
    size_t position, bytes;
};

class GgufWriter {
  public:
    explicit GgufWriter(uint32_t version = 3, uint64_t alignment = 32) : version_(version), alignment_(alignment) {}

    // Stores integers in 32 bits if they fit (all of a list in the same width), and numbers as f32.
    void set(std::string_view key, const ModelFile::Value& value);
    // Adds a value in its form in a file, after its type.
    void set_raw(std::string_view key, uint32_t type, std::string_view value);
    // ne: fastest dimension first
    void add_tensor(std::string_view name, GgmlType type, const std::vector<uint64_t>& ne);

    // The file without its data: everything up to the aligned start of the data section.
    std::string header() const;
    // The positions of the numbers of header().
    std::vector<GgufField> fields() const;
    // Size of tensor i's bytes, and their offset after header(). Up to the next tensor, or data_bytes(), there are zeros.
    uint64_t tensor_bytes(size_t i) const { return tensors_[i].bytes; }
    uint64_t tensor_offset(size_t i) const { return tensors_[i].offset; }
    uint64_t data_bytes() const { return data_bytes_; } // after header()

    // The whole file. fill(i, out) writes exactly tensor i's bytes.
    using Fill = std::function<void(size_t, std::ostream&)>;
    void write(std::ostream& out, const Fill& fill) const;
    // The whole file in memory, every tensor's bytes 0.
    std::string zeros() const;

  private:
    // Bytes of one section, with the fields in it.
    struct Section {
        std::string bytes;
        std::vector<GgufField> fields;
        uint64_t count = 0;

        template <class T> void number(T value, std::string what);
        void text(std::string_view value, const std::string& what);
    };
    struct Placed {
        uint64_t bytes, offset;
    };

    uint32_t version_;
    uint64_t alignment_;
    Section metadata_, infos_;
    std::vector<Placed> tensors_;
    uint64_t data_bytes_ = 0;
};

// A little-endian number in its form in a file.
template <class T> std::string raw(T value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

} // namespace tq
