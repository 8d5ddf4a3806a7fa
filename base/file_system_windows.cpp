// Locks on Windows are mandatory and of byte ranges: what one process has locked, no other can read. A lock of a file's content
// therefore locks a byte that no file has. The standard library's times differ by compiler (MSVC counts from 1601, others from
// 1970 or later), so they are read from the system.
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/windows_handle.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <fstream>
#include <ratio>
#include <sys/stat.h>
#include <wchar.h>

namespace tq {

struct FileLock::Impl {
    HANDLE file;
    explicit Impl(HANDLE file) : file(file) {}
    ~Impl() { ::CloseHandle(file); } // which also releases the lock
};

FileLock::FileLock(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileLock::~FileLock() = default;

std::unique_ptr<FileLock> FileLock::try_take(const std::filesystem::path& path, Of of) {
    // FILE_SHARE_DELETE: the file may be renamed meanwhile.
    const HANDLE file =
        ::CreateFileW(path.c_str(), GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                      OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE)
        fail("cannot open {}{}: error {}", of == Of::content ? "" : "the lock file ", utf8_text(path), ::GetLastError());
    auto impl = std::make_unique<Impl>(file);
    // lock_file: the first byte, as Python's filelock; content: a byte far after its end, since locked bytes cannot be read.
    OVERLAPPED byte = {};
    if (of == Of::content) byte.OffsetHigh = 1u << 30;
    if (!::LockFileEx(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &byte)) {
        if (::GetLastError() == ERROR_LOCK_VIOLATION || ::GetLastError() == ERROR_IO_PENDING) return nullptr;
        fail("cannot lock {}: error {}", utf8_text(path), ::GetLastError());
    }
    return std::unique_ptr<FileLock>(new FileLock(std::move(impl)));
}

std::filesystem::file_time_type last_modified(const std::filesystem::path& path, std::error_code& error) {
    WIN32_FILE_ATTRIBUTE_DATA data = {};
    error.clear();
    if (!::GetFileAttributesExW(path.c_str(), GetFileExInfoStandard, &data)) {
        error.assign(int(::GetLastError()), std::system_category());
        return std::filesystem::file_time_type::min();
    }
    using Ticks = std::chrono::duration<int64_t, std::ratio<1, 10'000'000>>; // of 100 ns, as Windows counts from 1601 on
    const Ticks since_1601(int64_t(uint64_t(data.ftLastWriteTime.dwHighDateTime) << 32 | data.ftLastWriteTime.dwLowDateTime));
#ifdef _MSC_VER
    return std::chrono::file_clock::time_point(since_1601);
#else
    constexpr auto from_1601_to_1970 = std::chrono::seconds(11'644'473'600);
    return std::chrono::file_clock::from_sys(std::chrono::sys_time<Ticks>(since_1601 - from_1601_to_1970));
#endif
}

void set_last_modified_now(const std::filesystem::path& path, std::error_code& error) {
    const WindowsHandle file(::CreateFileW(path.c_str(), FILE_WRITE_ATTRIBUTES,
                                           FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
                                           FILE_ATTRIBUTE_NORMAL, nullptr));
    FILETIME now = {};
    ::GetSystemTimePreciseAsFileTime(&now);
    error.clear();
    if (!file.valid() || !::SetFileTime(file.handle, nullptr, nullptr, &now))
        error.assign(int(::GetLastError()), std::system_category());
}

std::chrono::seconds time_since_use(const std::filesystem::path& path, std::error_code& error) {
    struct _stat64 status {};
    error.clear();
    if (::_wstat64(path.c_str(), &status) != 0) error.assign(errno, std::generic_category());
    return std::chrono::seconds(std::time(nullptr) - std::max(status.st_atime, status.st_mtime));
}

uint64_t taken_bytes(const std::filesystem::path& path, std::error_code& error) {
    return std::filesystem::file_size(path, error);
}

void flush_to_disk(const std::filesystem::path& path) {
    const HANDLE file = ::CreateFileW(path.c_str(), GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr, OPEN_EXISTING,
                                      FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) fail("cannot open {}: error {}", utf8_text(path), ::GetLastError());
    const bool flushed = ::FlushFileBuffers(file);
    const DWORD error = ::GetLastError();
    ::CloseHandle(file);
    if (!flushed) fail("cannot write {} to the disk: error {}", utf8_text(path), error);
}

// A user's own directories are private on Windows.
void append_private(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::app);
    if (!file.write(bytes.data(), std::streamsize(bytes.size())).flush())
        fail("cannot write {}", printable(utf8_text(path), 200));
}

} // namespace tq
