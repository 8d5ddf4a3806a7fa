// A device as JSON, for reports, results of bench and `devices`: its limits, and the kernels that follow from them.
#include "tools/tq-run/engine/device_description.h"
#include "base/printable.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tq {

std::string driver_text(const std::string& from_driver) { return printable(from_driver, 256); }

std::string api_version_text(uint32_t v) { return fmt::format("{}.{}.{}", (v >> 22) & 0x7f, (v >> 12) & 0x3ff, v & 0xfff); }

namespace {

// The variants of the kernels that the device gets: their specialisation constants.
nlohmann::ordered_json describe(const gpu::Tuning& t) {
    nlohmann::ordered_json all;
    for (const gpu::TuningField& field : gpu::tuning_fields()) all[field.name] = field.get(t);
    all["matrix_subgroup"] = t.matrix_subgroup;
    all["matrix"] = {t.matrix.m, t.matrix.n, t.matrix.k};
    all["subgroup"] = t.subgroup;
    all["texel_buffers"] = t.texel_buffers;
    return all;
}

} // namespace

// The limits in Vulkan's units, and which kernels follow from them. conformance's report has the same fields, so names here are a
// format that tools read.
nlohmann::ordered_json describe(const Capabilities& c) {
    return {
        {"name", driver_text(c.name)},
        {"type", name(c.type)},
        {"usable", c.unusable.empty()},
        {"unusable", c.unusable},
        {"profile", c.profile},
        {"driver_name", driver_text(c.driver_name)},
        {"driver_info", driver_text(c.driver_info)},
        {"driver_version", c.driver_version},
        {"api_version", api_version_text(c.api_version)},
        {"vendor_id", c.vendor_id},
        {"device_id", c.device_id},
        {"memory_bytes", c.memory_bytes},
        {"memory_budget_bytes", c.memory_budget_bytes},
        {"memory_used_bytes", c.memory_used_bytes},
        {"unified_memory", c.unified_memory},
        {"allocation_bytes", c.allocation_bytes},
        {"allocation_count", c.allocation_count},
        {"storage_range_bytes", c.storage_range_bytes},
        {"texel_range_bytes", c.texel_range_bytes},
        {"storage_alignment", c.storage_alignment},
        {"subgroup_size", c.subgroup_size},
        {"min_subgroup_size", c.min_subgroup_size},
        {"max_subgroup_size", c.max_subgroup_size},
        {"shader_cores", c.shader_cores},
        {"kernel_subgroup_size", c.kernel_subgroup_size},
        {"subgroup_size_choice", c.subgroup_size_choice},
        {"full_subgroups", c.full_subgroups},
        {"subgroup_arithmetic", c.subgroup_arithmetic},
        {"subgroup_shuffle", c.subgroup_shuffle},
        {"max_workgroup_invocations", c.max_workgroup_invocations},
        {"max_workgroup_size", c.max_workgroup_size},
        {"max_workgroup_count", c.max_workgroup_count},
        {"shared_memory_bytes", c.shared_memory_bytes},
        {"push_constant_bytes", c.push_constant_bytes},
        {"storage_buffers_per_stage", c.storage_buffers_per_stage},
        {"timestamp_ns", c.timestamp_ns},
        {"float16", c.float16},
        {"int8", c.int8},
        {"int16", c.int16},
        {"int8_dot_product", c.int8_dot_product},
        {"int8_dot_accelerated", c.int8_dot_accelerated},
        {"storage_8bit", c.storage_8bit},
        {"storage_16bit", c.storage_16bit},
        {"cooperative_matrix", c.cooperative_matrix},
        {"tuned", gpu::stored_tuning(c).tuning.has_value()},
        {"kernels", describe(gpu::tuning_for(c))},
    };
}

} // namespace tq
