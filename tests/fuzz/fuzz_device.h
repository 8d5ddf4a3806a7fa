// The device whose files the fuzz targets read; it has a directory of its own.
#pragma once
#include "runtime/capabilities.h"

namespace tq::fuzz {

inline Capabilities device() {
    Capabilities device;
    device.name = "fuzz";
    device.profile = "none";
    device.vendor_id = 1;
    device.device_id = 2;
    device.driver_version = 3;
    device.pipeline_cache_uuid = {4, 5, 6};
    device.memory_bytes = device.allocation_bytes = uint64_t(1) << 32;
    device.storage_range_bytes = device.texel_range_bytes = uint64_t(1) << 30;
    device.subgroup_size = device.kernel_subgroup_size = device.min_subgroup_size = device.max_subgroup_size = 32;
    device.subgroup_arithmetic = device.subgroup_shuffle = true;
    device.max_workgroup_invocations = 1024;
    device.max_workgroup_size = {1024, 1024, 64};
    device.max_workgroup_count = {65535, 65535, 65535};
    device.shared_memory_bytes = 32 << 10;
    return device;
}

} // namespace tq::fuzz
