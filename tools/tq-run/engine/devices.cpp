// tq-run devices: the devices of all Vulkan drivers and the CPU, as a table or as JSON. A machine without a driver or a GPU is a
// valid result: what fails is told on standard error, and the list has the CPU alone. A driver may crash or hang the process that
// lists its devices, so survey_drivers() has a child try new drivers first. The names that drivers give are bytes of any kind.
// They are made printable before they are shown or written. Programs read the JSON, so its names are kept.
#include "tools/tq-run/engine/devices.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device.h"
#include "runtime/device_profile.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/drivers.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <thread>

namespace tq {
namespace {

struct DevicesArguments {
    bool json = false;
};

// Makes valid UTF-8 for the JSON of any name that a driver gives its device.
std::string text(const std::string& from_driver) { return printable(from_driver, 256); }

std::string api_version_text(uint32_t v) { return fmt::format("{}.{}.{}", (v >> 22) & 0x7f, (v >> 12) & 0x3ff, v & 0xfff); }

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
        {"name", text(c.name)},
        {"type", name(c.type)},
        {"usable", c.unusable.empty()},
        {"unusable", c.unusable},
        {"profile", c.profile},
        {"driver_name", text(c.driver_name)},
        {"driver_info", text(c.driver_info)},
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

namespace {

// The features that faster kernels can use, as a list of words.
std::string features(const Capabilities& c) {
    std::vector<std::string_view> words;
    if (c.float16) words.push_back("fp16");
    if (c.storage_16bit) words.push_back("16-bit storage");
    if (c.storage_8bit) words.push_back("8-bit storage");
    if (c.int8_dot_product) words.push_back(c.int8_dot_accelerated ? "int8 dot" : "slow int8 dot");
    if (c.cooperative_matrix) words.push_back("cooperative matrix");
    if (c.unified_memory) words.push_back("unified memory");
    return fmt::format("{}", fmt::join(words, ", "));
}

// "subgroups of 16, out of 8 to 32"
std::string subgroups(const Capabilities& c) {
    if (c.kernel_subgroup_size == 0) return fmt::format("subgroups of {}, which kernels cannot count on", c.subgroup_size);
    if (c.min_subgroup_size == c.max_subgroup_size) return fmt::format("subgroups of {}", c.kernel_subgroup_size);
    return fmt::format("subgroups of {}, out of {} to {}", c.kernel_subgroup_size, c.min_subgroup_size, c.max_subgroup_size);
}

void print_table(const std::vector<Capabilities>& devices) {
    for (size_t i = 0; i < devices.size(); ++i) {
        const Capabilities& c = devices[i];
        write_text(fmt::format("{:>3}  {} ({})\n", i, text(c.name), name(c.type)));
        write_text(
            fmt::format("     {} {}, Vulkan {}\n", text(c.driver_name), text(c.driver_info), api_version_text(c.api_version)));
        if (c.profile != "none") write_text(fmt::format("     clamped by the device profile {}\n", c.profile));
        if (!c.unusable.empty()) write_text(fmt::format("     cannot be used: {}\n", text(c.unusable)));
        write_text(fmt::format("     memory {} MiB, {} MiB free; {}; {}\n", c.memory_bytes >> 20, c.memory_budget_bytes >> 20,
                               subgroups(c), features(c)));
        const gpu::StoredTuning stored = gpu::stored_tuning(c);
        const gpu::Tuning t = stored.tuning.value_or(gpu::choose_tuning(c));
        write_text(
            fmt::format("     kernels in workgroups of {}{}; matvec {} lanes x {} rows, matmul {} rows x {} tokens, attention {} "
                        "splits; prompts in blocks of {}\n",
                        t.workgroup, t.texel_buffers ? ", for a processor" : "", t.matvec_lanes, t.matvec_rows, t.matmul_rows,
                        t.matmul_tokens, t.splits, t.batch_size));
        if (stored.tuning) write_text("     as tq-run bench --tune has found; --tune --reset forgets it\n");
        if (!stored.problem.empty()) write_error(fmt::format("tq-run: {}\n", stored.problem));
    }
    write_text(fmt::format("cpu  the processor, {} threads; needs no Vulkan\n", std::thread::hardware_concurrency()));
}

int run(const DevicesArguments& arguments) {
    find_device_profile(); // a wrong TQ_DEVICE_PROFILE is the user's error; no device at all is a valid result
    std::vector<Capabilities> devices;
    try {
        if (survey_drivers()) devices = list_devices();
    } catch (const Error& error) {
        write_error(fmt::format("tq-run: {}\n", error.what()));
    }
    if (!arguments.json) {
        print_table(devices);
        return 0;
    }
    auto list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < devices.size(); ++i) {
        nlohmann::ordered_json entry{{"device", std::to_string(i)}, {"build", build_description()}};
        entry.update(describe(devices[i]));
        list.push_back(std::move(entry));
    }
    list.push_back({{"device", "cpu"},
                    {"build", build_description()},
                    {"name", "CPU"},
                    {"type", "cpu"},
                    {"usable", true},
                    {"threads", std::thread::hardware_concurrency()}});
    write_output(list.dump(2) + "\n");
    return 0;
}

} // namespace

void add_devices(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, DevicesArguments& a) {
        command.add_flag("--json", a.json, "print the devices as JSON");
    };
    add_command<DevicesArguments>(app, action, "devices", "List the devices that can run a model", flags, run);
}

} // namespace tq
