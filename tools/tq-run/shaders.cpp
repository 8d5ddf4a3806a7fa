// tq-run shaders: every variant of every kernel, what a driver makes of them, and whether any needs more registers than there
// are.
#include "base/error.h"
#include "base/printable.h"
#include "model/gpu/variants.h"
#include "runtime/compiler.h"
#include "runtime/specialise.h"
#include "tools/tq-run/commands.h"
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using Json = nlohmann::ordered_json;

struct ShadersArguments {
    ConsoleArguments console;
    std::string device, filter, json;
    bool list = false, compile = false, check = false;
};

struct Row {
    gpu::Variant variant;
    std::vector<KernelStatistics> programs;
    StatisticsSummary summary;
    std::string error; // of a variant that did not compile

    const char* kernel() const { return variant.shader->name; }
    uint64_t shared_bytes() const { return shared_memory_bytes(*variant.shader, variant.constants); }
    bool spills() const { return summary.spilled.value_or(0) != 0 || summary.scratch_bytes.value_or(0) != 0; }
};

std::vector<Row> list_rows(const Capabilities& device, const std::string& filter) {
    std::vector<Row> rows;
    for (gpu::Variant& variant : gpu::all_variants(gpu::all_tunings(device)))
        if (std::string_view(variant.shader->name).find(filter) != std::string_view::npos)
            rows.push_back({std::move(variant), {}, {}, {}});
    if (rows.empty()) fail("no kernel has \"{}\" in its name: tq-run shaders --list prints all", filter);
    return rows;
}

// A constant's value: of a cache type its name.
std::string value_text(const std::string& name, uint32_t value) {
    return name.ends_with("type") ? tq::name(KvType(value)) : std::to_string(value);
}

// "head_dim=128 type=tq4"
std::string describe(const gpu::Variant& variant) {
    std::string out;
    const std::vector<std::string> names = constant_names(*variant.shader);
    for (size_t i = 0; i < names.size(); i++)
        out += fmt::format("{}{}={}", i ? " " : "", names[i], value_text(names[i], variant.constants[i]));
    return out;
}

std::string text(std::optional<uint64_t> value) { return value ? std::to_string(*value) : "-"; }

constexpr std::string_view table_row = "{:<16} {:>5} {:>5} {:>5} {:>7} {:>6} {:>5} {:>6}  {}\n";

void print_header() {
    write_output(fmt::format(table_row, "kernel", "vgprs", "sgprs", "spill", "scratch", "shared", "occ", "code", "variant"));
}

void print(const Row& row) {
    const StatisticsSummary& s = row.summary;
    write_output(fmt::format(table_row, row.kernel(), text(s.vgprs), text(s.sgprs), text(s.spilled), text(s.scratch_bytes),
                             row.shared_bytes(), text(s.occupancy), text(s.code_bytes), describe(row.variant)));
    if (!row.error.empty()) write_output(fmt::format("{:<16} {}\n", "", printable(row.error, 300)));
}

void compile(Compiler& compiler, Row& row) {
    try {
        row.programs = compiler.compile(*row.variant.shader, row.variant.constants);
        row.summary = worst(row.programs);
    } catch (const Error& error) {
        row.error = error.what();
    }
}

// Prints each row as it is made. Returns whether all compiled, and none of them to something that spills.
bool compile_all(Compiler& compiler, std::vector<Row>& rows, Console& console) {
    const auto start = std::chrono::steady_clock::now();
    size_t failed = 0, spilling = 0;
    print_header();
    for (size_t i = 0; i < rows.size(); i++) {
        console.status(fmt::format("compiling {} of {}: {}", i + 1, rows.size(), rows[i].kernel()));
        compile(compiler, rows[i]);
        console.clear_status();
        print(rows[i]);
        failed += !rows[i].error.empty();
        spilling += rows[i].spills();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string spills =
        compiler.has_statistics() ? fmt::format("{} spill or use scratch", spilling) : "the driver says nothing of spills";
    write_output(fmt::format("{} variants on {} in {:.1f} s: {} failed, {}\n", rows.size(),
                             printable(compiler.capabilities().name, 256), seconds, failed, spills));
    return failed + spilling == 0;
}

Json to_json(const StatisticsSummary& s) {
    const auto value = [](std::optional<uint64_t> v) { return v ? Json(*v) : Json(); };
    return {{"vgprs", value(s.vgprs)},         {"sgprs", value(s.sgprs)},
            {"spilled", value(s.spilled)},     {"scratch_bytes", value(s.scratch_bytes)},
            {"lds_bytes", value(s.lds_bytes)}, {"code_bytes", value(s.code_bytes)},
            {"occupancy", value(s.occupancy)}};
}

Json to_json(const KernelStatistics& program) {
    Json all = Json::object();
    for (const Statistic& one : program.all) std::visit([&](auto value) { all[printable(one.name, 256)] = value; }, one.value);
    return {{"name", printable(program.name, 256)}, {"subgroup_size", program.subgroup_size}, {"statistics", all}};
}

Json to_json(const Row& row) {
    Json constants = Json::object(), programs = Json::array();
    const std::vector<std::string> names = constant_names(*row.variant.shader);
    for (size_t i = 0; i < names.size(); i++) constants[names[i]] = row.variant.constants[i];
    for (const KernelStatistics& program : row.programs) programs.push_back(to_json(program));
    Json out{{"kernel", row.kernel()}, {"constants", constants}, {"shared_memory_bytes", row.shared_bytes()}};
    if (!row.error.empty()) out["error"] = printable(row.error, 1000);
    if (programs.empty()) return out;
    out["summary"] = to_json(row.summary);
    out["programs"] = programs;
    return out;
}

void write_json(const std::string& path, const Compiler& compiler, std::span<const Row> rows) {
    const Capabilities& device = compiler.capabilities();
    Json out{{"device", printable(device.name, 256)},
             {"driver", printable(device.driver_name + " " + device.driver_info, 256)},
             {"profile", device.profile},
             {"has_statistics", compiler.has_statistics()},
             {"kernels", Json::array()}};
    for (const Row& row : rows) out["kernels"].push_back(to_json(row));
    std::ofstream file{std::filesystem::path(path), std::ios::binary};
    file << out.dump(1) << '\n';
    file.close();
    if (!file) fail("cannot write {}: choose another file with --json", path);
}

int run(const ShadersArguments& arguments) {
    Compiler compiler(arguments.device);
    std::vector<Row> rows = list_rows(compiler.capabilities(), arguments.filter);
    Console console = arguments.console.console();
    bool good = true;
    if (arguments.compile || arguments.check)
        good = compile_all(compiler, rows, console);
    else
        for (const Row& row : rows) write_output(fmt::format("{:<16} {}\n", row.kernel(), describe(row.variant)));
    if (!arguments.json.empty()) write_json(arguments.json, compiler, rows);
    if (arguments.check && !compiler.has_statistics())
        write_error("tq-run: the driver has no VK_KHR_pipeline_executable_properties: only that all compile was checked\n");
    return good || !arguments.check ? 0 : 1;
}

} // namespace

void add_shaders(CLI::App& app, Action& action) {
    const auto flags = [](CLI::App& command, ShadersArguments& a) {
        auto* list = command.add_flag("--list", a.list, "print the variants (what it does without --compile)");
        command.add_flag("--compile", a.compile, "compile them and print what the driver says of each")->excludes(list);
        command
            .add_flag("--check", a.check, "compile them; exit status 1 when one fails, spills registers or uses scratch memory")
            ->excludes(list);
        command.add_option("--device", a.device, "index or part of the name of a Vulkan device; one without memory will do")
            ->option_text("NAME");
        command.add_option("--filter", a.filter, "only kernels with this in their name")->option_text("KERNEL");
        command.add_option("--json", a.json, "write everything there, as JSON")->option_text("FILE");
        add_flags(command, a.console);
    };
    add_command<ShadersArguments>(app, action, "shaders", "The kernels' variants, and what a driver makes of them", flags, run);
}

} // namespace tq
