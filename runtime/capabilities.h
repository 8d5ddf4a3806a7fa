// Everything known about a device, as plain data: kernels are chosen by it, and `tq-run devices` prints it.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace tq {

enum class DeviceType { discrete, integrated, virtual_gpu, cpu, other };

// Returns "discrete", "integrated", "virtual", "cpu" or "other".
const char* name(DeviceType type);

// A product of an m x k and a k x n matrix.
struct MatrixShape {
    uint32_t m = 0, n = 0, k = 0;

    bool operator==(const MatrixShape&) const = default;
};

struct Capabilities {
    std::string name;      // "AMD Radeon RX 6800"
    std::string unusable;  // why this device cannot be used; empty if it can
    bool compiles = false; // kernels can be built for it (Compiler), though it may be unusable for having no memory
    std::string profile;   // the device profile that clamped all this; "none" for the device as it is
    DeviceType type = DeviceType::other;
    std::string driver_name; // "radv"
    std::string driver_info; // "Mesa 23.1.2"
    uint32_t api_version = 0, driver_version = 0, vendor_id = 0, device_id = 0;
    std::array<uint8_t, 16> pipeline_cache_uuid{};

    uint64_t memory_bytes = 0;        // the largest heap of the device's own memory
    uint64_t memory_budget_bytes = 0; // how much of it this process may use now (VK_EXT_memory_budget, else memory_bytes)
    uint64_t memory_used_bytes = 0;   // how much of it this process uses now (VK_EXT_memory_budget, else 0)
    bool unified_memory = false;      // the host can write all of the device's memory directly
    uint64_t allocation_bytes = 0;    // largest single buffer
    uint32_t allocation_count = 0;    // allocations that may exist at a time
    uint64_t storage_range_bytes = 0; // largest View that a kernel can be given; at most 2 GiB, so that 32 bits index its bytes
    uint64_t texel_range_bytes = 0;   // the same for a kernel that reads it as texels of 16 bytes
    uint32_t storage_alignment = 0;   // of a View's offset

    uint32_t subgroup_size = 0, min_subgroup_size = 0, max_subgroup_size = 0;
    // The subgroup size of kernels that use subgroup operations; 0: unknown, and only kernels without these operations run.
    uint32_t kernel_subgroup_size = 0;
    bool subgroup_size_choice = false; // a pipeline can require a size; otherwise all subgroups have the same one
    bool full_subgroups = false;       // a pipeline can require subgroups to be full
    bool subgroup_arithmetic = false, subgroup_shuffle = false;
    uint32_t shader_cores = 0; // cores that run workgroups independently; 0: not known
    uint32_t max_workgroup_invocations = 0;
    std::array<uint32_t, 3> max_workgroup_size{}, max_workgroup_count{};
    uint32_t shared_memory_bytes = 0, push_constant_bytes = 0, storage_buffers_per_stage = 0;
    bool narrow_barriers = true; // false: barriers name all accesses (BarrierForm::full)
    double timestamp_ns = 0;     // of one tick; 0 if the queue has no timestamps
    uint64_t timestamp_mask = 0; // the valid bits of a timestamp

    // Enabled wherever the device has them, so a kernel variant may be chosen by any of these.
    bool float16 = false, int8 = false, int16 = false, int8_dot_product = false, storage_8bit = false, storage_16bit = false;
    bool int8_dot_accelerated = false; // products of four signed bytes in a word are faster than one by one
    // A subgroup of subgroup_size multiplies matrices of fp16, with sums in fp32 (VK_KHR_cooperative_matrix).
    bool cooperative_matrix = false;
    MatrixShape matrix;
};

} // namespace tq
