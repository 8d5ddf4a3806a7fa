// Translates drivers' statistics of a compiled kernel, which have many names, to one set of numbers. Lists of names are in order
// of trust, most trusted first. A number that no driver reports is absent, not 0: "no spills" and "unknown" are different
// answers.
#include "runtime/statistics.h"
#include "base/printable.h"
#include <algorithm>
#include <string_view>

namespace tq {
namespace {

using Value = std::optional<uint64_t>;

bool same(std::string_view a, std::string_view b) { return lowercase(a) == lowercase(b); }

Value find(std::span<const Statistic> statistics, std::string_view name) {
    for (const Statistic& one : statistics)
        if (same(one.name, name)) return std::visit([](auto value) { return uint64_t(value); }, one.value);
    return std::nullopt;
}

// Returns the first of these statistics that the driver reports.
Value first(std::span<const Statistic> statistics, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
        if (const Value value = find(statistics, name)) return value;
    return std::nullopt;
}

Value sum(std::span<const Statistic> statistics, std::initializer_list<std::string_view> names) {
    Value total;
    for (const std::string_view name : names)
        if (const Value value = find(statistics, name)) total = total.value_or(0) + *value;
    return total;
}

// Returns the first value that is not zero, as some drivers report zero for "unknown"; zero if all are.
Value first_known(std::span<const Statistic> statistics, std::initializer_list<std::string_view> names) {
    Value zero;
    for (const std::string_view name : names) {
        const Value value = find(statistics, name);
        if (value.value_or(0) != 0) return value;
        if (value) zero = value;
    }
    return zero;
}

// Returns the code size in bytes; Turnip counts words of 4.
Value code_bytes(std::span<const Statistic> statistics) {
    for (const Statistic& one : statistics)
        if (same(one.name, "Code size") && one.description.find("dwords") != std::string::npos)
            return find(statistics, one.name).value() * 4;
    return first(statistics, {"Code size", "Binary Size"});
}

} // namespace

// Mesa: RADV; ANV (before and after 25.2); Turnip; PanVK; NVK; V3DV; Honeykrisp; and NVIDIA's own driver. NVK counts both
// spilled registers and arrays as SLM, but reports the spills separately, too; ANV 26 reports 0 GRF registers before Xe3.
StatisticsSummary summarise(std::span<const Statistic> statistics) {
    const bool tells_spills_from_arrays = find(statistics, "Spills to memory").has_value();
    return {
        .vgprs = first_known(statistics, {"VGPRs", "GRF registers", "Registers used", "Register Count", "Number of GPRs", "GPRs",
                                          "Temp count", "Max live registers"}),
        .sgprs = first(statistics, {"SGPRs"}),
        .spilled = sum(statistics, {"Spilled SGPRs", "Spilled VGPRs", "Spill Count", "Spills", "STP Count", "TMU Spills",
                                    "Spills to memory"}),
        .scratch_bytes = first(
            statistics, {"Scratch size", "Scratch Memory Size", "Scratch", "Stack Size", "Spill Size", "Local Memory Size"}),
        .array_bytes = tells_spills_from_arrays ? find(statistics, "SLM size") : std::nullopt,
        .lds_bytes = first(statistics, {"LDS size", "Workgroup Memory Size", "Shared Memory Size"}),
        .code_bytes = code_bytes(statistics),
        .occupancy = first(statistics, {"Subgroups per SIMD", "Max Waves Per Core", "Threads", "Thread Count", "Max warps/SM"}),
    };
}

StatisticsSummary worst(std::span<const KernelStatistics> programs) {
    StatisticsSummary out;
    const auto raise = [](Value& to, const Value& value) {
        if (value) to = std::max(to.value_or(0), *value);
    };
    for (const KernelStatistics& program : programs) {
        const StatisticsSummary& one = program.summary;
        raise(out.vgprs, one.vgprs);
        raise(out.sgprs, one.sgprs);
        raise(out.spilled, one.spilled);
        raise(out.scratch_bytes, one.scratch_bytes);
        raise(out.array_bytes, one.array_bytes);
        raise(out.lds_bytes, one.lds_bytes);
        raise(out.code_bytes, one.code_bytes);
        if (one.occupancy) out.occupancy = std::min(out.occupancy.value_or(UINT64_MAX), *one.occupancy);
    }
    return out;
}

} // namespace tq
