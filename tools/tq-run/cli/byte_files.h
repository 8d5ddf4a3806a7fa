// Binary input and output of commands: files of any length in pieces, or the standard streams.
#pragma once
#include "base/file_system.h"
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>

namespace tq {

class ByteInput {
  public:
    explicit ByteInput(std::string path); // "-": standard input. Throws Error when it cannot be opened.

    // Fills `bytes` as far as the input reaches; returns the number of bytes read. Throws Error when reading fails.
    size_t read(std::span<uint8_t> bytes);

    std::optional<uint64_t> length() const { return length_; } // of a regular file
    const std::string& path() const { return path_; }
    std::string name() const; // for messages

  private:
    std::string path_;
    std::ifstream file_;
    std::optional<uint64_t> length_;
};

// Removes what writers of the file have left beside it that did not finish and no longer run.
void remove_dead_drafts(const std::filesystem::path& target);

// A file is complete after commit(), and unchanged without it: until then the data is in a temporary file beside it, which the
// next output to the same file removes if this process did not. "-" (standard output) and files that are not regular, such
// as pipes, are written directly.
class ByteOutput {
  public:
    // Throws Error when it cannot be opened, is the file that `input` reads, or is a dangling link.
    ByteOutput(std::string path, const ByteInput& input);
    ~ByteOutput();
    ByteOutput(const ByteOutput&) = delete;
    ByteOutput& operator=(const ByteOutput&) = delete;

    void write(std::span<const uint8_t> bytes); // throws Error or OutputClosed
    void commit();

  private:
    bool to_stream() const { return path_ == "-"; }
    void take_draft();
    void remove_draft();

    std::string path_;
    std::filesystem::path target_, temporary_; // `temporary_` is empty if there is none
    std::unique_ptr<FileLock> lock_;           // of `temporary_`: held while its writer runs
    std::ofstream file_;
};

} // namespace tq
