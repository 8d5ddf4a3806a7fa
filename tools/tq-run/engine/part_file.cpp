// A large file that takes long to write, and need not begin anew. NAME.part has the bytes; NAME.part.log is a RunLog of finished
// parts, one line each; NAME.part.lock keeps other processes out. A part is logged after its bytes were flushed, so a log may
// lack a part that is there, but never has one that is not. Even so each part is checked when the file is opened again
// (is_right): a power failure may lose bytes that a process has flushed. Parts are kept up to the first that is wrong.
// The first line of the log says what is written (`what`). A log of the same kind with another `what` is begun anew; a file
// that has no log is not ours, and is refused instead of overwritten.
#include "tools/tq-run/engine/part_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/tq-run/cli/table.h"
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tq {
namespace {

namespace fs = std::filesystem;

std::string shown(const fs::path& path) { return printable(utf8_text(path), 300); }

fs::path with_ending(fs::path path, const char* ending) { return path += ending; }

uint64_t size_of(const fs::path& path) {
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
}

} // namespace

// The order is from refusing to writing: what is in the way (directories, pipes, links, files of others), the lock, the space on
// the disk, the log, the parts that are right. Only then is a byte of the draft changed. The header is written again in any case,
// as it costs nothing and is then certainly the one that the log is about.
PartFile::PartFile(fs::path path, const std::string& header, uint64_t bytes, const nlohmann::json& what, bool overwrite,
                   const IsRight& is_right)
    : path_(std::move(path)), draft_(with_ending(path_, ".part")), log_path_(with_ending(path_, ".part.log")), bytes_(bytes),
      overwrite_(overwrite), lock_{with_ending(path_, ".part.lock")} {
    std::error_code error;
    if (fs::is_directory(path_, error)) fail("{} is a directory, not a file", shown(path_));
    for (const fs::path* each : {&path_, &draft_, &log_path_, &lock_.path})
        if (fs::exists(*each, error) && !fs::is_regular_file(*each, error))
            fail("{} is not a regular file: delete it, or name another file", shown(*each));
    for (const fs::path* each : {&draft_, &log_path_, &lock_.path})
        if (fs::is_symlink(*each, error)) fail("{} is a link, which is not written through: delete it", shown(*each));
    refuse_existing();
    refuse_foreign(what);
    take_draft(header, bytes);
    open_log(what);
    keep_right(what, is_right);
    if (finished() == 0) fs::resize_file(draft_, 0, error);
    try {
        errno = 0;
        file_.open(draft_, std::ios::binary | std::ios::in | std::ios::out);
        if (!file_) cannot_write();
        write(0, std::as_bytes(std::span(header)));
    } catch (const Error&) { // the object is not made, and its destructor not called
        remove_unkept();
        throw;
    }
}

std::array<fs::path, 4> PartFile::names(const fs::path& path) {
    return {path, with_ending(path, ".part"), with_ending(path, ".part.log"), with_ending(path, ".part.lock")};
}

void PartFile::refuse_existing() const {
    std::error_code error;
    if (!overwrite_ && fs::exists(path_, error)) fail("{} exists: name another file, or give --overwrite", shown(path_));
}

// An unfinished file has a log, whose first line says of what kind it is; files without bytes have nothing to lose.
void PartFile::refuse_foreign(const nlohmann::json& what) const {
    constexpr size_t max_line = 1 << 16;
    std::string line(size_t(std::min<uint64_t>(size_of(log_path_), max_line)), '\0');
    std::ifstream(log_path_, std::ios::binary).read(line.data(), std::streamsize(line.size()));
    const nlohmann::json first = nlohmann::json::parse(line.substr(0, line.find('\n')), nullptr, false);
    const bool ours = first.is_object() && first.value("schema", nlohmann::json()) == what.at("schema");
    for (const fs::path* each : {&draft_, &log_path_, &lock_.path})
        if (size_of(*each) > 0 && (!ours || each == &lock_.path))
            fail("{} exists, and is not what a stopped run of this command left: delete or rename it, or name another file",
                 shown(*each));
}

void PartFile::cannot_write() const {
    fail("cannot write {}: {}; {}", shown(draft_), errno != 0 ? std::strerror(errno) : "unknown error",
         is_kept() ? "the same command goes on with it later" : "nothing is kept");
}

void PartFile::take_draft(const std::string& header, uint64_t bytes) {
    std::error_code error;
    try {
        errno = 0;
        lock_.held = FileLock::try_take(lock_.path);
    } catch (const Error&) {
        fail("cannot write {}: {}", shown(path_), errno != 0 ? std::strerror(errno) : "unknown error");
    }
    if (!lock_.held) fail("another tq-run is writing {}: wait until it has ended", shown(path_));
    const fs::space_info disk = fs::space(path_.has_parent_path() ? path_.parent_path() : fs::path("."), error);
    const uint64_t needed = std::max<uint64_t>(header.size(), bytes - std::min(bytes, size_of(draft_)));
    if (!error && disk.available < needed)
        fail("{} takes {} more, and its disk has {}: make room, or name a file on another disk", shown(path_), size_text(needed),
             size_text(disk.available));
    std::ofstream(draft_, std::ios::binary | std::ios::app); // exists from now on
}

PartFile::Lock::~Lock() {
    std::error_code ignored;
    if (held) fs::remove(path, ignored);
}

PartFile::~PartFile() { remove_unkept(); }

void PartFile::remove_unkept() {
    if (!log_ || is_kept()) return;
    file_.close();
    log_.reset();
    std::error_code ignored;
    for (const fs::path* each : {&draft_, &log_path_}) fs::remove(*each, ignored);
}

// A log of another run, or a damaged one, is begun anew.
void PartFile::open_log(const nlohmann::json& what) {
    try {
        log_.emplace(log_path_, what);
    } catch (const Error&) {
        std::error_code error;
        fs::remove(log_path_, error);
        log_.emplace(log_path_, what);
    }
}

// The log is written anew with the lines that hold, since a RunLog only grows. If the process ends in between, fewer parts are
// known than are there.
void PartFile::keep_right(const nlohmann::json& what, const IsRight& is_right) {
    const std::vector<nlohmann::json> all = log_->parts();
    size_t kept = 0;
    if (!all.empty() && size_of(draft_) > 0) {
        const MappedFile draft(draft_);
        while (kept < all.size() && is_right(kept, all[kept], draft.bytes())) ++kept;
    }
    if (kept == all.size()) return;
    log_.reset();
    std::error_code error;
    fs::remove(log_path_, error);
    log_.emplace(log_path_, what);
    for (size_t i = 0; i < kept; ++i) log_->add(all[i]);
}

void PartFile::write(uint64_t offset, std::span<const std::byte> bytes) {
    errno = 0;
    file_.seekp(std::streamoff(offset));
    file_.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    if (!file_) cannot_write();
}

void PartFile::finish(nlohmann::json part) {
    errno = 0;
    if (!file_.flush()) cannot_write();
    log_->add(std::move(part));
}

const fs::path& PartFile::close() {
    errno = 0;
    file_.close();
    std::error_code error;
    if (file_) fs::resize_file(draft_, bytes_, error);
    if (!file_ || error) cannot_write();
    flush_to_disk(draft_);
    return draft_;
}

// The rename is the moment at which the file exists: it is whole or not there. The log goes after it; one that is left behind
// without a draft is begun anew by the next run.
void PartFile::commit() {
    std::error_code error, ignored;
    refuse_existing(); // written by others meanwhile
    fs::rename(draft_, path_, error);
    if (error) fail("cannot write {}: {}", shown(path_), error.message());
    log_.reset();
    fs::remove(log_path_, ignored);
}

} // namespace tq
