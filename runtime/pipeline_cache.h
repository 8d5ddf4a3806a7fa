// The driver's compiled kernels, kept on disk between runs. Private to runtime/.
#pragma once
#include "runtime/capabilities.h"
#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace tq {

// Returns a path for each device and driver version, as device_file() does. Empty if there is no cache directory.
std::filesystem::path pipeline_cache_path(const Capabilities& device);

// Returns the data that write_pipeline_cache wrote; empty when the file is missing, damaged or of another device, since a
// driver may trust its content.
std::vector<std::byte> read_pipeline_cache(const std::filesystem::path& path, const Capabilities& device);

// Replaces the file atomically. Failing is not an error: the cache only saves time.
void write_pipeline_cache(const std::filesystem::path& path, std::span<const std::byte> data) noexcept;

} // namespace tq
