// tq-run devices: the devices of all Vulkan drivers and the CPU, as a table or as JSON. A machine without a driver or a GPU is a
// valid result: what fails is told on standard error, and the list has the CPU alone. A driver may crash or hang the process that
// lists its devices, so survey_drivers() has a child try new drivers first. The names that drivers give are bytes of any kind.
// They are made printable before they are shown or written. Programs read the JSON, so its names are kept.
#include "base/error.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device.h"
#include "runtime/device_profile.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/device_description.h"
#include "tools/tq-run/engine/drivers.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <thread>

namespace tq {
namespace {

struct DevicesArguments {
    bool json = false;
};

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
        write_text(fmt::format("{:>3}  {} ({})\n", i, driver_text(c.name), name(c.type)));
        write_text(fmt::format("     {} {}, Vulkan {}\n", driver_text(c.driver_name), driver_text(c.driver_info),
                               api_version_text(c.api_version)));
        if (c.profile != "none") write_text(fmt::format("     clamped by the device profile {}\n", c.profile));
        if (!c.unusable.empty()) write_text(fmt::format("     cannot be used: {}\n", driver_text(c.unusable)));
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
        add_flag(command, "--json", a.json, "print the devices as JSON");
    };
    add_command<DevicesArguments>(app, action, "devices", "List the devices that can run a model", flags, run);
}

} // namespace tq
