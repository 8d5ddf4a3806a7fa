// The content of a model, whatever its file format: metadata under GGUF's key names, and tensors under GGUF's tensor names, in
// one or several memory-mapped files. Its readers have checked that every tensor is inside its file.
#pragma once
#include "base/mapped_file.h"
#include "model/files/formats/blocks.h"
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tq {

struct FileTensor {
    std::string name;
    GgmlType type;                   // known to ggml; block_format(type) tells whether we can decode it
    std::array<uint64_t, 4> ne;      // elements per dimension, fastest first; unused dimensions are 1
    std::span<const std::byte> data; // inside a mapping, not aligned; its size is row bytes times rows
};

class ModelFile {
  public:
    struct Nested {}; // a list of lists, whose elements are not kept: no key that is read has one
    // Scalars are widened (every unsigned to uint64_t, signed to int64_t, float to double); arrays keep their type, except that
    // booleans become uint64_t. Text points into a mapping or into texts() and may contain any bytes.
    using Value = std::variant<uint64_t, int64_t, double, bool, std::string_view, std::vector<uint64_t>, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string_view>, Nested>;
    using Metadata = std::map<std::string, Value, std::less<>>;
    // A value as it lies in a GGUF file, after its type.
    struct Stored {
        uint32_t type;
        std::string_view bytes;
    };

    explicit ModelFile(std::filesystem::path path) : path_(std::move(path)) {}

    const std::filesystem::path& path() const { return path_; } // the file, the first of several, or their directory
    const Metadata& metadata() const { return metadata_; }
    // The keys of a GGUF file, in any order; of a split one its first part's. Empty for other formats.
    const std::map<std::string, Stored, std::less<>>& stored_metadata() const { return stored_; }
    const std::vector<FileTensor>& tensors() const { return tensors_; }
    std::vector<FileIdentity> identities() const; // of the mapped files

    // Returns nullptr when absent.
    const Value* find(std::string_view key) const;
    const FileTensor* find_tensor(std::string_view name) const;

    // Typed reads. The form without a fallback throws an Error naming the key when it is absent; all throw on a wrong type.
    uint64_t integer(std::string_view key) const;
    uint64_t integer(std::string_view key, uint64_t fallback) const;
    double real(std::string_view key) const;
    double real(std::string_view key, double fallback) const;
    bool boolean(std::string_view key, bool fallback) const;
    std::string_view text(std::string_view key) const;
    std::string_view text(std::string_view key, std::string_view fallback) const;
    const std::vector<std::string_view>& strings(std::string_view key) const;
    std::vector<uint64_t> integers(std::string_view key) const; // of any integer type; a single one is a list of it

    // Returns the name of a key for errors: "PATH: key 'KEY'", or the name that the key had in the file from which it was read.
    std::string label(std::string_view key) const;
    bool has_own_label(std::string_view key) const { return labels_.contains(key); }

    // True if the rows of each head of q and k are in two halves for every architecture, as Hugging Face has them.
    bool rope_is_split() const { return rope_split_; }

    // Notes about what was ignored in the files, a sentence each.
    const std::vector<std::string>& notes() const { return notes_; }

    // For the readers of formats.
    void add_note(std::string note) { notes_.push_back(std::move(note)); }
    const MappedFile& add_mapping(MappedFile file) { return mappings_.emplace_back(std::move(file)); }
    std::string_view add_text(std::string text) { return texts_.emplace_back(std::move(text)); } // owned from now on
    void set_label(std::string key, std::string label) { labels_.insert_or_assign(std::move(key), std::move(label)); }
    void set_rope_split() { rope_split_ = true; }
    void absorb_tensors(ModelFile other); // and the memory that they point into; drops its metadata
    Metadata& mutable_metadata() { return metadata_; }
    void add_stored(std::string key, Stored value) { stored_.emplace(std::move(key), value); }
    std::vector<FileTensor>& mutable_tensors() { return tensors_; }

  private:
    std::filesystem::path path_;
    std::deque<MappedFile> mappings_; // deques, so that pointers into their elements stay valid when they grow or move
    std::deque<std::string> texts_;
    Metadata metadata_;
    std::map<std::string, Stored, std::less<>> stored_;
    std::map<std::string, std::string, std::less<>> labels_; // of keys that have another name in their file
    std::vector<FileTensor> tensors_;
    std::vector<std::string> notes_;
    bool rope_split_ = false;
};

} // namespace tq
