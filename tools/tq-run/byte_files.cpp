#include "tools/tq-run/byte_files.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "tools/tq-run/console.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

namespace tq {
namespace {

namespace fs = std::filesystem;

// Why the last operation of a stream failed; the standard promises no errno.
const char* reason() { return errno != 0 ? std::strerror(errno) : "unknown error"; }

} // namespace

ByteInput::ByteInput(std::string path) : path_(std::move(path)) {
    if (path_ == "-") return;
    std::error_code error;
    if (fs::is_directory(path_, error)) fail("{} is a directory, not a file", name());
    errno = 0;
    file_.open(fs::path(path_), std::ios::binary);
    if (!file_) fail("cannot open {}: {}", name(), reason());
    if (fs::is_regular_file(path_, error)) length_ = fs::file_size(path_);
}

size_t ByteInput::read(std::span<uint8_t> bytes) {
    errno = 0;
    if (path_ == "-") {
        const size_t count = std::fread(bytes.data(), 1, bytes.size(), stdin);
        if (std::ferror(stdin) && !interrupted()) fail("cannot read standard input: {}", reason());
        return count;
    }
    file_.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(bytes.size()));
    if (file_.bad()) fail("cannot read {}: {}", name(), reason());
    return size_t(file_.gcount());
}

std::string ByteInput::name() const { return path_ == "-" ? "standard input" : printable(path_); }

ByteOutput::ByteOutput(std::string path, const ByteInput& input) : path_(std::move(path)) {
    if (to_stream()) return;
    std::error_code error;
    target_ = fs::path(path_);
    if (fs::is_directory(target_, error)) fail("{} is a directory, not a file", printable(path_));
    if (input.path() != "-" && fs::equivalent(target_, input.path(), error))
        fail("{} is the input itself: name another file with --out", printable(path_));
    const bool exists = fs::exists(target_, error);
    if (exists) target_ = fs::canonical(target_); // a link stays a link
    if (!exists || fs::is_regular_file(target_)) {
        temporary_ = target_;
        temporary_ += fmt::format(".{:08x}.part", std::random_device{}());
    }
    errno = 0;
    file_.open(temporary_.empty() ? target_ : temporary_, std::ios::binary | std::ios::trunc);
    if (file_) return;
    temporary_.clear();
    fail("cannot write {}: {}", printable(path_), reason());
}

ByteOutput::~ByteOutput() {
    if (temporary_.empty()) return;
    file_.close();
    std::error_code ignored;
    fs::remove(temporary_, ignored);
}

void ByteOutput::write(std::span<const uint8_t> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (to_stream()) return write_output(text);
    errno = 0;
    if (!file_.write(text.data(), std::streamsize(text.size()))) fail("cannot write {}: {}", printable(path_), reason());
}

void ByteOutput::commit() {
    if (to_stream()) return;
    errno = 0;
    file_.close();
    if (!file_) fail("cannot write {}: {}", printable(path_), reason());
    if (temporary_.empty()) return;
    flush_to_disk(temporary_);
    std::error_code error, ignored;
    if (fs::exists(target_, ignored)) fs::permissions(temporary_, fs::status(target_).permissions(), ignored);
    fs::rename(temporary_, target_, error);
    if (error) fail("cannot write {}: {}", printable(path_), error.message());
    temporary_.clear();
}

} // namespace tq
