// Files are replaced whole or not at all. The bytes go to a draft beside the target, NAME.XXXXXXXX.part; commit() flushes it to
// the disk, gives it the permissions of the file that it replaces, and renames it. If the process dies before, the target is
// unchanged and the draft stays; the next writer of the same file, or a reader that keeps it, removes it.
// How a dead draft is told from one that is being written: its writer holds a lock on it, which ends with the process. A sweeper
// may hold that lock for a moment, so take_draft() tries again with another name.
// A symbolic link is followed first, so that it stays a link. A pipe or a device is written directly.
#include "tools/tq-run/cli/byte_files.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/tq-run/cli/console.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

namespace tq {
namespace {

namespace fs = std::filesystem;

// The reason why the last operation of a stream failed; the standard promises no errno.
const char* reason() { return errno != 0 ? std::strerror(errno) : "unknown error"; }

constexpr std::string_view draft_end = ".part";

fs::path draft_of(const fs::path& target) {
    fs::path draft = target;
    return draft += fmt::format(".{:08x}{}", std::random_device{}(), draft_end);
}

bool is_draft_of(const std::string& target, std::string_view name) {
    if (!name.starts_with(target + '.') || !name.ends_with(draft_end)) return false;
    const std::string_view number = name.substr(target.size() + 1, name.size() - target.size() - 1 - draft_end.size());
    return number.size() == 8 && number.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

} // namespace

// The drafts whose writers did not finish: nobody holds their locks.
void remove_dead_drafts(const fs::path& target) {
    const fs::path directory = target.has_parent_path() ? target.parent_path() : fs::path(".");
    const std::string name = utf8_text(target.filename());
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
        if (!is_draft_of(name, utf8_text(at->path().filename()))) continue;
        try {
            std::error_code ignored;
            if (at->symlink_status(ignored).type() != fs::file_type::regular) continue;
            if (const auto lock = FileLock::try_take(at->path(), FileLock::Of::content)) fs::remove(at->path(), ignored);
        } catch (const Error&) { // another user's
        }
    }
}

ByteInput::ByteInput(std::string path) : path_(std::move(path)) {
    if (path_ == "-") return;
    std::error_code error;
    if (fs::is_directory(utf8_path(path_), error)) fail("{} is a directory, not a file", name());
    errno = 0;
    file_.open(utf8_path(path_), std::ios::binary);
    if (!file_) fail("cannot open {}: {}", name(), reason());
    if (const fs::path file = utf8_path(path_); fs::is_regular_file(file, error)) length_ = fs::file_size(file);
}

size_t ByteInput::read(std::span<uint8_t> bytes) {
    errno = 0;
    if (path_ == "-") {
        const WaitForInput waiting;
        const size_t count = std::fread(bytes.data(), 1, bytes.size(), stdin);
        if (std::ferror(stdin) && !interrupted()) fail("cannot read standard input: {}", reason());
        return count;
    }
    file_.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(bytes.size()));
    if (file_.bad()) fail("cannot read {}: {}", name(), reason());
    return size_t(file_.gcount());
}

std::string ByteInput::name() const { return path_ == "-" ? "standard input" : printable(path_); }

// Fails here, before hours of work, if it would fail in the end: a directory, the input itself, a link to nothing, a folder that
// cannot be written.
ByteOutput::ByteOutput(std::string path, const ByteInput& input) : path_(std::move(path)) {
    if (to_stream()) return;
    std::error_code error;
    target_ = utf8_path(path_);
    if (fs::is_directory(target_, error)) fail("{} is a directory, not a file", printable(path_));
    if (input.path() != "-" && fs::equivalent(target_, utf8_path(input.path()), error))
        fail("{} is the input itself: name another file with --out", printable(path_));
    const bool exists = fs::exists(target_, error);
    if (!exists && fs::is_symlink(target_, error))
        fail("{} is a link to {}, which is not there: make that first, or remove the link", printable(path_),
             printable(utf8_text(fs::read_symlink(target_, error)), 200));
    if (exists) target_ = fs::canonical(target_); // a link stays a link
    if (!exists || fs::is_regular_file(target_)) {
        remove_dead_drafts(target_);
        take_draft();
    }
    errno = 0;
    file_.open(temporary_.empty() ? target_ : temporary_, std::ios::binary | std::ios::trunc);
    if (file_) return;
    const std::string why = reason();
    remove_draft();
    fail("cannot write {}: {}", printable(path_), why);
}

void ByteOutput::take_draft() {
    while (!lock_) { // another process, which removes old drafts, may hold it for a moment
        temporary_ = draft_of(target_);
        try {
            lock_ = FileLock::try_take(temporary_, FileLock::Of::content);
        } catch (const Error&) {
            temporary_.clear();
            fail("cannot write {}: {}", printable(path_), reason());
        }
    }
}

void ByteOutput::remove_draft() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove(temporary_, ignored);
    temporary_.clear();
    lock_.reset();
}

ByteOutput::~ByteOutput() {
    file_.close();
    remove_draft();
}

void ByteOutput::write(std::span<const uint8_t> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (to_stream()) return write_output(text);
    errno = 0;
    if (!file_.write(text.data(), std::streamsize(text.size()))) fail("cannot write {}: {}", printable(path_), reason());
}

// The draft's bytes are on the disk before the rename: a power failure must not leave the new name with old or empty content.
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
    lock_.reset();
}

} // namespace tq
