// A file comes in as many pieces as the network breaks it into. Arrived bytes are on the disk as `incomplete`, also between
// processes, and each request asks for the rest. Nothing that a server says about ranges is believed: if it sends the whole
// file, or another part than asked for, what is there is forgotten and the file begins anew.
// The checksum is computed as bytes arrive, so a file of many GiB is not read a second time; only what an earlier process left
// is read, before the first request. The file gets its name when its checksum is right. If it is wrong and a part was from an
// earlier download, that part is suspected, and the file is fetched once more from its beginning; else the download fails.
// A lock keeps two processes from writing one file; the second waits, and finds it complete.
// Attempts are limited only as long as nothing arrives (Retry). Progress is measured by the most bytes that the file ever had:
// else a server that forgets ranges would be asked for ever.
#include "model/hub/download.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/hub/digest.h"
#include "model/hub/names.h"
#include "model/hub/plain_file.h"
#include "model/hub/retry.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr size_t block_bytes = 1 << 20;
constexpr uint64_t worthwhile_bytes = 1 << 20; // an attempt that brings at least this counts as progress

// The received bytes, on the disk, and their checksum so far.
class PartialFile {
  public:
    PartialFile(const fs::path& path, const HubFile& file, const std::function<void()>& check);

    uint64_t bytes() const { return bytes_; }
    void restart();
    void append(std::span<const std::byte> bytes);
    std::string close(); // returns the checksum

  private:
    void read_existing(const std::function<void()>& check);
    [[noreturn]] void complain() const;

    fs::path path_;
    Digest digest_;
    PlainFile file_;
    uint64_t bytes_ = 0, size_;
};

PartialFile::PartialFile(const fs::path& path, const HubFile& file, const std::function<void()>& check)
    : path_(path), digest_(file.oid, file.size), file_(open_plain_file(path)), size_(file.size) {
    read_existing(check);
}

void PartialFile::read_existing(const std::function<void()>& check) {
    std::vector<std::byte> block(block_bytes);
    while (const size_t count = std::fread(block.data(), 1, block.size(), file_.get())) {
        check();
        digest_.update(std::span(block).first(count));
        bytes_ += count;
        if (bytes_ > size_) break;
    }
    if (bytes_ > size_ || std::ferror(file_.get())) return restart(); // too long, or not readable to its end
    std::fseek(file_.get(), 0, SEEK_END);                             // C requires this between reading and writing
}

void PartialFile::complain() const {
    fail("cannot write {}: {}; the part that was downloaded is kept", utf8_text(path_), std::strerror(errno));
}

// Creates a new file rather than truncating: the old one may have other hard links.
void PartialFile::restart() {
    file_.reset();
    std::error_code error;
    fs::remove(path_, error);
    if (error) fail("cannot remove {}: {}", utf8_text(path_), error.message());
    file_ = open_plain_file(path_);
    digest_.restart();
    bytes_ = 0;
}

void PartialFile::append(std::span<const std::byte> bytes) {
    errno = 0;
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) complain();
    digest_.update(bytes);
    bytes_ += bytes.size();
}

std::string PartialFile::close() {
    errno = 0;
    if (std::fclose(file_.release()) != 0) complain();
    flush_to_disk(path_);
    return digest_.finish();
}

// A file that is being downloaded.
class FileDownload {
  public:
    FileDownload(Download& all, const HubFile& file) : all_(all), file_(file) {}

    std::unique_ptr<FileLock> wait_for_lock();
    std::string receive(); // returns the checksum of the whole file

  private:
    bool keep_going() const;
    void require_keep_going() const {
        if (!keep_going()) stop();
    }
    [[noreturn]] void stop() const;
    bool begin(PartialFile& partial, const HttpHead& head);
    void take(PartialFile& partial, std::span<const std::byte> bytes);
    void forget(PartialFile& partial);

    Download& all_;
    const HubFile& file_;
    bool misplaced_ = false; // the server sends another range than requested
    uint64_t max_ = 0;       // the most bytes that the file has had so far
};

bool FileDownload::keep_going() const {
    all_.progress.file = file_.path;
    return !all_.options.progress || all_.options.progress(all_.progress);
}

void FileDownload::stop() const {
    throw DownloadStopped(fmt::format("the download of {} is stopped at {} %; the same command continues it", all_.repository,
                                      all_.progress.done * 100 / std::max<uint64_t>(all_.progress.total, 1)));
}

std::unique_ptr<FileLock> FileDownload::wait_for_lock() {
    bool noted = false;
    while (true) {
        if (auto lock = FileLock::try_take(all_.cache.lock(file_))) return lock;
        if (!std::exchange(noted, true) && all_.options.note)
            all_.options.note(fmt::format("another process is downloading {}: waiting for it", printable(file_.path)));
        require_keep_going();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

void FileDownload::forget(PartialFile& partial) {
    all_.progress.done -= partial.bytes();
    partial.restart();
}

bool FileDownload::begin(PartialFile& partial, const HttpHead& head) {
    if (head.status != 206 && partial.bytes() > 0) forget(partial); // the server ignores ranges, and sends the whole file
    if (!head.range_problem.empty())
        fail("the server does not say which part of {} it sends (Content-Range: {}): try again later", printable(file_.path),
             printable(head.range_problem));
    misplaced_ = head.first_byte != partial.bytes();
    return !misplaced_;
}

void FileDownload::take(PartialFile& partial, std::span<const std::byte> bytes) {
    if (bytes.size() > file_.size - partial.bytes())
        fail("the server sends more than the {} bytes that {} should have: it is not the file that the hub lists", file_.size,
             printable(file_.path));
    partial.append(bytes);
    all_.progress.done += bytes.size();
    all_.progress.received += bytes.size();
}

std::string FileDownload::receive() {
    PartialFile partial(all_.cache.incomplete(file_), file_, [&] { require_keep_going(); });
    all_.progress.done += partial.bytes();
    const std::string url =
        fmt::format("{}/{}/resolve/{}/{}", all_.options.endpoint, all_.repository, all_.commit, url_path(file_.path));
    const auto asked = [&] { return keep_going(); };
    const HttpSink sink{[&](const HttpHead& head) { return begin(partial, head); },
                        [&](std::span<const std::byte> bytes) {
                            take(partial, bytes);
                            return true;
                        },
                        asked};
    Retry retry(all_.options, all_.http.sends_token(), all_.repository, printable(file_.path));
    max_ = partial.bytes();
    while (partial.bytes() < file_.size) {
        const uint64_t before = partial.bytes();
        misplaced_ = false;
        HttpResult result = all_.http.get(url, before, sink);
        if (result.end == HttpEnd::stopped && !misplaced_) stop();
        if (misplaced_ || result.head.status == 416) forget(partial);
        if (result.end == HttpEnd::complete && partial.bytes() < file_.size && result.head.status / 100 == 2)
            result = {result.head, HttpEnd::cut, fmt::format("it ends after {} of {} bytes", partial.bytes(), file_.size)};
        // Discarded bytes are no progress, or a server that forgets ranges would be asked forever.
        retry.succeeded(result, partial.bytes() >= max_ + worthwhile_bytes, asked);
        max_ = std::max(max_, partial.bytes());
    }
    return partial.close();
}

} // namespace

void Download::fetch(const HubFile& file) {
    FileDownload one(*this, file);
    const auto lock = one.wait_for_lock();
    if (cache.has_blob(file)) { // another process has downloaded it meanwhile
        progress.done += file.size;
        return;
    }
    // Twice: the file left by an earlier download may be damaged.
    for (const bool last : {false, true}) {
        std::error_code unknown;
        const bool resumed = fs::exists(cache.incomplete(file), unknown);
        const std::string checksum = one.receive();
        std::error_code error;
        if (checksum == file.oid) {
            fs::rename(cache.incomplete(file), cache.blob(file), error);
            if (error) fail("cannot write {}: {}", utf8_text(cache.blob(file)), error.message());
            return;
        }
        fs::remove(cache.incomplete(file), error);
        progress.done -= file.size;
        if (last || !resumed)
            fail("{} arrived with the checksum {}, but the hub says {}: it was changed or damaged on the way, and is deleted; "
                 "try again",
                 printable(file.path), checksum, file.oid);
    }
}

} // namespace tq
