// A file mapping for Windows. While it exists nobody can truncate the file or write to it, since it is shared for reading only.
// If its medium is removed, reading raises EXCEPTION_IN_PAGE_ERROR, which nothing here catches: it ends the program.
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "base/windows_handle.h"
#include <cstdint>
#include <system_error>
#include <utility>

namespace tq {
namespace {

std::string last_error() { return std::system_category().message(int(GetLastError())); }

} // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    const WindowsHandle file(
        CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr));
    if (!file.valid()) fail("cannot open {}: {}", utf8_text(path), last_error());
    BY_HANDLE_FILE_INFORMATION info{};
    if (!GetFileInformationByHandle(file.handle, &info)) fail("cannot read the size of {}: {}", utf8_text(path), last_error());
    // FILE_FLAG_BACKUP_SEMANTICS allows a directory to be opened, so that it gets an error of its own.
    if (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) fail("{} is a directory, not a file", utf8_text(path));
    const uint64_t size = uint64_t(info.nFileSizeHigh) << 32 | info.nFileSizeLow;
    if (size == 0) fail("{} is empty", utf8_text(path));
    if (!std::in_range<size_t>(size)) fail("{} has {} bytes, more than this machine can address", utf8_text(path), size);
    const WindowsHandle mapping(CreateFileMappingW(file.handle, nullptr, PAGE_READONLY, 0, 0, nullptr));
    if (!mapping.valid()) fail("cannot map the {} bytes of {}: {}", size, utf8_text(path), last_error());
    const void* const address = MapViewOfFile(mapping.handle, FILE_MAP_READ, 0, 0, 0);
    if (!address) fail("cannot map the {} bytes of {}: {}", size, utf8_text(path), last_error());
    bytes_ = {static_cast<const std::byte*>(address), size_t(size)};
    const auto whole = [](DWORD high, DWORD low) { return uint64_t(high) << 32 | low; };
    const FILETIME& written = info.ftLastWriteTime;                // in units of 100 ns since 1601
    constexpr int64_t from_1601_to_1970 = 116'444'736'000'000'000; // in the same units
    identity_ = {info.dwVolumeSerialNumber, whole(info.nFileIndexHigh, info.nFileIndexLow), size,
                 (int64_t(whole(written.dwHighDateTime, written.dwLowDateTime)) - from_1601_to_1970) * 100};
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) UnmapViewOfFile(bytes_.data());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), identity_(other.identity_), region_(std::exchange(other.region_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(identity_, other.identity_);
    std::swap(region_, other.region_);
    return *this;
}

std::optional<std::string> MappedFile::lost_file() { return std::nullopt; }
std::optional<std::string> lost_mapped_file() { return MappedFile::lost_file(); }
void check_mapped_files() {}

void read_ahead(std::span<const std::byte> bytes) {
    WIN32_MEMORY_RANGE_ENTRY range{const_cast<std::byte*>(bytes.data()), bytes.size()};
    PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

} // namespace tq
