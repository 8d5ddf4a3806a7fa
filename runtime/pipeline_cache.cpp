// File: 8 bytes of magic, size and FNV-1a hash of the driver's data (8 bytes each, this machine's byte order), the data.
#include "runtime/pipeline_cache.h"
#include "base/whole_file.h"
#include "runtime/device_files.h"
#include <cstring>
#include <fstream>

namespace tq {
namespace {

constexpr uint64_t magic = 0x3165686361637174; // "tqcache1"
constexpr uint64_t max_bytes = uint64_t(256) << 20;

struct FileHeader {
    uint64_t magic, bytes, hash;
};

// VkPipelineCacheHeaderVersionOne, with which every driver's data begins.
struct DriverHeader {
    uint32_t header_bytes, version, vendor_id, device_id;
    uint8_t uuid[16];
};
static_assert(sizeof(DriverHeader) == 32);

uint64_t hash_of(std::span<const std::byte> data) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte byte : data) hash = (hash ^ uint64_t(byte)) * 0x100000001b3;
    return hash;
}

// Drivers should check this header themselves. Data that another driver wrote is not handed to them all the same, and neither is
// data that was damaged on the disk (hash_of()).
bool made_by(std::span<const std::byte> data, const Capabilities& device) {
    DriverHeader header;
    if (data.size() < sizeof header) return false;
    std::memcpy(&header, data.data(), sizeof header);
    return header.header_bytes >= sizeof header && header.version == 1 && header.vendor_id == device.vendor_id &&
           header.device_id == device.device_id && std::memcmp(header.uuid, device.pipeline_cache_uuid.data(), 16) == 0;
}

} // namespace

std::filesystem::path pipeline_cache_path(const Capabilities& device) { return device_file(device, ".pipelines"); }

std::vector<std::byte> read_pipeline_cache(const std::filesystem::path& path, const Capabilities& device) {
    std::error_code error;
    const uint64_t file_bytes = std::filesystem::file_size(path, error); // fails for all but regular files
    FileHeader header;
    if (error || file_bytes < sizeof header || file_bytes > max_bytes) return {};
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(&header), sizeof header);
    if (!in || header.magic != magic || header.bytes != file_bytes - sizeof header) return {};
    std::vector<std::byte> data(header.bytes);
    in.read(reinterpret_cast<char*>(data.data()), std::streamsize(data.size()));
    if (!in || hash_of(data) != header.hash || !made_by(data, device)) return {};
    return data;
}

// Whatever fails is no error: the next run compiles again.
void write_pipeline_cache(const std::filesystem::path& path, std::span<const std::byte> data) noexcept try {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    const FileHeader header{magic, data.size(), hash_of(data)};
    write_whole_file(path, {std::as_bytes(std::span(&header, 1)), data});
} catch (...) {
    return; // no memory or no such path: the next run compiles again
}

} // namespace tq
