// tq-run shaders: compiles every variant of every kernel, and reports the driver's statistics and whether any needs more
// registers than there are. A variant is a kernel with specialisation constants that some tuning of the device can choose
// (gpu::all_variants). No kernel is run and no memory needed, so it works with drivers that only compile (RADV_FORCE_FAMILY,
// the compiler lab). The statistics come from VK_KHR_pipeline_executable_properties, where each vendor has other names (worst()
// in runtime/ makes common ones of them); "-" means that the driver does not say.
// --check fails for variants that do not compile, that spill or use scratch memory, or whose subgroups have another size than
// they count on: these would compute wrong results.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "base/whole_file.h"
#include "model/gpu/variants.h"
#include "model/kv/types.h"
#include "runtime/compiler.h"
#include "runtime/specialise.h"
#include "runtime/subgroup_size.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/drivers.h"
#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using Json = nlohmann::ordered_json;

struct ShadersArguments {
    ConsoleArguments console;
    std::string device, filter, shard, json, spirv, disassembly;
    bool list = false, compile = false, check = false;
};

struct Row {
    Variant variant;
    uint32_t subgroup_size; // that the kernel requires; 0: any
    std::vector<KernelStatistics> programs;
    StatisticsSummary summary;
    std::string error; // of a variant that did not compile

    const char* kernel() const { return variant.shader->name; }
    uint64_t shared_bytes() const { return shared_memory_bytes(*variant.shader, variant.constants); }
    // Whether the kernel requires a size of its subgroups that the driver has not given it.
    bool has_other_subgroups() const {
        return subgroup_size != 0 && std::ranges::any_of(programs, [&](const KernelStatistics& program) {
                   return program.subgroup_size != 0 && program.subgroup_size != subgroup_size;
               });
    }
    bool spills() const { return summary.spilled.value_or(0) != 0 || summary.scratch_bytes.value_or(0) != 0; }
};

// The text of a constant's value: for a cache type its name.
std::string value_text(const std::string& name, uint32_t value) {
    return name.ends_with("type") ? tq::name(KvType(value)) : std::to_string(value);
}

// "head_dim=128 type=tq4"
std::string describe(const Variant& variant) {
    std::string out;
    const std::vector<std::string> names = constant_names(*variant.shader);
    for (size_t i = 0; i < names.size(); i++)
        out += fmt::format("{}{}={}", i ? " " : "", names[i], value_text(names[i], variant.constants[i]));
    return out;
}

// Shards take every n-th variant that the filter lets through, so that each has variants of all kernels.
std::vector<Row> list_rows(const Capabilities& device, const std::string& filter, const std::string& part) {
    const auto [shard, shards] = part.empty() ? std::pair(1u, 1u) : parse_shard(part);
    std::vector<Row> rows;
    uint32_t number = 0;
    for (Variant& variant : gpu::all_variants(gpu::all_tunings(device)))
        if (fmt::format("{} {}", variant.shader->name, describe(variant)).find(filter) != std::string::npos &&
            number++ % shards == shard - 1)
            rows.push_back({std::move(variant), subgroup_size_of(*variant.shader, device), {}, {}, {}});
    if (rows.empty()) fail("no variant has \"{}\" in its name or constants: tq-run shaders --list prints all", filter);
    return rows;
}

std::string text(std::optional<uint64_t> value) { return value ? std::to_string(*value) : "-"; }

// The name of a file: "matvec_q8_0.workgroup=128.lanes=16".
std::string file_stem(const Variant& variant) {
    std::string out = variant.shader->name;
    const std::vector<std::string> names = constant_names(*variant.shader);
    for (size_t i = 0; i < names.size(); i++) out += fmt::format(".{}={}", names[i], value_text(names[i], variant.constants[i]));
    for (char& c : out)
        if (c == '/') c = '_';
    return out;
}

void write_result(const std::filesystem::path& path, std::span<const std::byte> bytes, const char* flag) {
    if (write_file(path, {bytes})) fail("cannot write {}: choose another folder with {}", utf8_text(path), flag);
}

void make_folder(const std::string& folder, const char* flag) {
    std::error_code error;
    std::filesystem::create_directories(utf8_path(folder), error);
    if (error) fail("cannot make the folder {} of {}: {}", folder, flag, error.message());
}

// Writes the modules, with the constants of each variant as their defaults.
// An offline compiler may not specialise. So constants become their own defaults, which compilers then fold as a driver would.
void write_spirv(const std::string& folder, std::span<const Row> rows) {
    make_folder(folder, "--spirv");
    for (const Row& row : rows) {
        const std::vector<uint32_t> code = specialised(*row.variant.shader, row.variant.constants);
        write_result(utf8_path(folder) / (file_stem(row.variant) + ".spv"), std::as_bytes(std::span(code)), "--spirv");
    }
    write_error(fmt::format("wrote {} modules to {}\n", rows.size(), folder));
}

// Writes the representations that the driver shows, a file for each variant and representation.
void write_disassembly(const std::string& folder, std::span<const Row> rows) {
    make_folder(folder, "--disassembly");
    size_t files = 0;
    for (const Row& row : rows)
        for (size_t p = 0; p < row.programs.size(); p++)
            for (const Representation& one : row.programs[p].representations) {
                std::string name = one.name;
                for (char& c : name)
                    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                write_result(utf8_path(folder) / fmt::format("{}.{}.{}.txt", file_stem(row.variant), p, name),
                             std::as_bytes(std::span(one.text)), "--disassembly");
                files++;
            }
    if (files == 0) fail("the driver gives no disassembly, so --disassembly has nothing to write");
    write_error(fmt::format("wrote {} texts to {}\n", files, folder));
}

constexpr const char* columns_help =
    "Columns of --compile, - where the driver does not say:\n"
    "  subgroup      subgroup size that the kernel relies on\n"
    "  vgprs, sgprs  registers of an invocation; of a subgroup (AMD)\n"
    "  spill         registers, or instructions, that spill\n"
    "  scratch       bytes of scratch memory of an invocation; arrays: those of arrays alone (NVK)\n"
    "  shared        bytes of shared memory of a workgroup\n"
    "  occ           occupancy: subgroups (AMD per SIMD, Adreno per core, NVK per SM) or threads (Mali, Apple, V3D) in flight\n"
    "  code          bytes of machine code";

constexpr std::string_view statistics_row = "{:<16} {:>8} {:>5} {:>5} {:>5} {:>7} {:>6} {:>6} {:>5} {:>6}  {}\n";

void print_header() {
    write_output(fmt::format(statistics_row, "kernel", "subgroup", "vgprs", "sgprs", "spill", "scratch", "arrays", "shared",
                             "occ", "code", "variant"));
}

void print(const Row& row) {
    const StatisticsSummary& s = row.summary;
    write_output(fmt::format(statistics_row, row.kernel(), row.subgroup_size ? std::to_string(row.subgroup_size) : "-",
                             text(s.vgprs), text(s.sgprs), text(s.spilled), text(s.scratch_bytes), text(s.array_bytes),
                             row.shared_bytes(), text(s.occupancy), text(s.code_bytes), describe(row.variant)));
    if (!row.error.empty()) write_output(fmt::format("{:<16} {}\n", "", printable(row.error, 300)));
    if (!row.has_other_subgroups()) return;
    for (const KernelStatistics& program : row.programs)
        write_output(fmt::format("{:<16} wrong results: compiled for subgroups of {}, but the kernel relies on {}\n", "",
                                 program.subgroup_size, row.subgroup_size));
}

void compile(Compiler& compiler, Row& row) {
    try {
        row.programs = compiler.compile(*row.variant.shader, row.variant.constants);
        row.summary = worst(row.programs);
    } catch (const Error& error) {
        row.error = error.what();
    }
}

// Prints each row as it is made. Returns whether all compiled, and none of them spills.
// A variant that does not compile is counted, and the rest is compiled all the same: the list of all that fail is wanted.
bool compile_all(Compiler& compiler, std::vector<Row>& rows, Console& console) {
    const Stopwatch stopwatch;
    size_t failed = 0, spilling = 0, of_other_subgroups = 0;
    print_header();
    for (size_t i = 0; i < rows.size(); i++) {
        console.status(fmt::format("compiling {} of {}: {}", i + 1, rows.size(), rows[i].kernel()));
        compile(compiler, rows[i]);
        console.clear_status();
        print(rows[i]);
        failed += !rows[i].error.empty();
        spilling += rows[i].spills();
        of_other_subgroups += rows[i].has_other_subgroups();
    }
    const std::string spills =
        compiler.has_statistics() ? fmt::format("{} spill or use scratch", spilling) : "the driver says nothing of spills";
    write_text(fmt::format("{} variants on {} in {:.1f} s: {} failed, {} in subgroups of another size than they count on, {}\n",
                           rows.size(), printable(compiler.capabilities().name, 256), stopwatch.seconds(), failed,
                           of_other_subgroups, spills));
    return failed + of_other_subgroups + spilling == 0;
}

Json to_json(const StatisticsSummary& s) {
    const auto value = [](std::optional<uint64_t> v) { return v ? Json(*v) : Json(); };
    return {{"vgprs", value(s.vgprs)},
            {"sgprs", value(s.sgprs)},
            {"spilled", value(s.spilled)},
            {"scratch_bytes", value(s.scratch_bytes)},
            {"array_bytes", value(s.array_bytes)},
            {"lds_bytes", value(s.lds_bytes)},
            {"code_bytes", value(s.code_bytes)},
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
    Json out{{"kernel", row.kernel()},
             {"constants", constants},
             {"subgroup_size", row.subgroup_size},
             {"shared_memory_bytes", row.shared_bytes()}};
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
    const std::string text = out.dump(1) + '\n';
    if (write_file(utf8_path(path), {std::as_bytes(std::span(text))}))
        fail("cannot write {}: choose another file with --json", path);
}

int run(const ShadersArguments& arguments) {
    if (!survey_drivers()) fail("no Vulkan driver can be used: tq-run doctor tells more");
    Compiler compiler(arguments.device, {}, !arguments.disassembly.empty());
    std::vector<Row> rows = list_rows(compiler.capabilities(), arguments.filter, arguments.shard);
    Console console = arguments.console.console();
    bool good = true;
    if (arguments.compile || arguments.check || !arguments.disassembly.empty())
        good = compile_all(compiler, rows, console);
    else
        for (const Row& row : rows) write_output(fmt::format("{:<16} {}\n", row.kernel(), describe(row.variant)));
    if (!arguments.spirv.empty()) write_spirv(arguments.spirv, rows);
    if (!arguments.disassembly.empty()) write_disassembly(arguments.disassembly, rows);
    if (!arguments.json.empty()) write_json(arguments.json, compiler, rows);
    if (arguments.check && !compiler.has_statistics())
        write_error("tq-run: the driver has no VK_KHR_pipeline_executable_properties, so it was only checked that all variants "
                    "compile\n");
    return good || !arguments.check ? 0 : 1;
}

} // namespace

void add_shaders(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, ShadersArguments& a) {
        command.footer(columns_help);
        auto list =
            add_flag(command, "--list", a.list, "list the variants, with their kernels and constants; this is the default");
        add_flag(command, "--compile", a.compile,
                 "compile the variants and print the driver's statistics of each: see the columns below")
            .excludes(list);
        add_flag(command, "--check", a.check,
                 "compile the variants; exit status 1 if one fails, gets another subgroup size than it relies on, spills "
                 "registers or uses scratch memory")
            .excludes(list);
        add_option(command, "--device", a.device, "NAME",
                   "Vulkan device by index or part of its name; one without memory is enough; default: the best device");
        add_option(
            command, "--filter", a.filter, "TEXT",
            "only variants with this in the line that --list prints, such as q4_k or \"attention workgroup=\"; default: all");
        add_option(command, "--shard", a.shard, "K/N", "only one part of these variants, such as 2/3 for the second of three")
            .check(parsed_by([](const std::string& text) { parse_shard(text); }));
        add_option(command, "--spirv", a.spirv, "DIR",
                   "write each variant's SPIR-V to this folder, with its constants as defaults");
        add_option(command, "--disassembly", a.disassembly, "DIR",
                   "compile, and write the driver's disassembly and intermediate code to this folder");
        add_option(command, "--json", a.json, "FILE", "write all of this to a file, as JSON");
        add_flags(command, a.console);
    };
    add_command<ShadersArguments>(app, action, "shaders", "List the kernels' variants, and show what a driver compiles them to",
                                  flags, run);
}

} // namespace tq
