// A driver's statistics of a kernel that it compiled (VK_KHR_pipeline_executable_properties).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tq {

struct Statistic {
    std::string name, description; // the driver's own
    std::variant<bool, int64_t, uint64_t, double> value;
};

// The same statistics for every driver; empty if the driver does not report them.
struct StatisticsSummary {
    std::optional<uint64_t>
        vgprs; // registers per invocation, in the driver's unit (4-byte registers of a lane on AMD and NVIDIA)
    std::optional<uint64_t> sgprs;         // registers per subgroup (AMD)
    std::optional<uint64_t> spilled;       // registers, or instructions that store one, whichever the driver counts
    std::optional<uint64_t> scratch_bytes; // memory for spilled registers and for arrays that are in no registers
    std::optional<uint64_t> array_bytes;   // bytes of arrays alone, if the driver reports them separately: no sign of a spill
    std::optional<uint64_t> lds_bytes;     // shared memory of a workgroup
    std::optional<uint64_t> code_bytes;
    std::optional<uint64_t> occupancy; // subgroups (AMD: per SIMD, Adreno: per core) or threads that can be in flight
};

StatisticsSummary summarise(std::span<const Statistic> statistics);

// An internal representation that a driver shows, such as a disassembly.
struct Representation {
    std::string name, text; // only of representations that the driver marks as text
};

// One compiled program of a pipeline; a driver may make several of one kernel, such as one for each subgroup size.
struct KernelStatistics {
    std::string name; // the driver's own
    uint32_t subgroup_size = 0;
    std::vector<Statistic> all;
    StatisticsSummary summary;
    std::vector<Representation> representations; // if they were requested
};

// Returns the largest of each value, for occupancy the smallest.
StatisticsSummary worst(std::span<const KernelStatistics> programs);

} // namespace tq
