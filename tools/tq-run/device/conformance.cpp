// tq-run conformance: whether a device computes what the reference computes. The command is two programs. The parent chooses
// rows, starts itself as a worker (--worker) and reads a line of JSON for each row; a worker that crashes or hangs is started
// again after that row (tools/check/conformance/runner.h). The worker opens the device and runs. It prints a line end before each
// message, because drivers print to standard output, too.
// Reports: a table that shows what is wrong, --json for a bug report, --junit for CI, --dump for a row's inputs and modules.
// Files are tried before the run, which may take an hour. Exit status 77: nothing could be tested, which CTest and others take
// for a skipped test.
// --expect names rows that are known to fail; then a row that passes is an error, too, so the list does not rot.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "runtime/device.h"
#include "runtime/device_profile.h"
#include "tools/check/conformance/replay.h"
#include "tools/check/conformance/report.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/byte_files.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/device_description.h"
#include "tools/tq-run/engine/drivers.h"
#include "tools/tq-run/engine/engine.h"
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

namespace tq::conformance {
namespace {

constexpr int nothing_was_tested = 77; // the exit status that automake, CTest and Meson take for a skipped test

struct ConformanceArguments {
    std::string device, profile, json, junit, shard, dump, subject, expect, replay, spirv;
    std::vector<std::string> filters, filter_files, excludes;
    uint64_t seed = 1, first = 0;
    uint32_t timeout = 60; // seconds
    uint32_t repeat = 1;
    std::optional<uint32_t> shuffle;
    bool list = false, full = false, tuned = false, verbose = false, worker = false, list_devices = false, record = false;

    Selection selection() const {
        Selection out{.filters = filters, .excludes = excludes, .full = full, .shuffle = shuffle, .subject = subject};
        for (const std::string& file : filter_files) {
            const std::vector<std::string> more = read_patterns(utf8_path(file));
            if (more.empty()) fail("{} names no row: one name or pattern a line", printable(file, 200));
            out.filters.insert(out.filters.end(), more.begin(), more.end());
        }
        if (!shard.empty()) std::tie(out.shard, out.shards) = parse_shard(shard);
        return out;
    }
};

void write_line(const Json& message) { // on a line of its own whatever a driver printed before
    write_output('\n' + message.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

int work(const ConformanceArguments& a) {
    if (a.list_devices) {
        list_usable_devices(write_line, [](const Capabilities& c) { return describe(c); });
        return 0;
    }
    WorkerOptions options{.device = a.device,
                          .selection = a.selection(),
                          .seed = a.seed,
                          .first = a.first,
                          .record = a.record,
                          .repeat = a.repeat,
                          .dump = utf8_path(a.dump),
                          .describe = [](const Capabilities& c) { return describe(c); },
                          .write = write_line};
    try {
        options.model = find_demo_model();
    } catch (const Error&) { // the rows that need it report that
    }
    run_worker(options);
    return 0;
}

// A report, if one is asked for. Its file is opened before the hour-long run, and is as it was until the report is written.
class ReportFile {
  public:
    explicit ReportFile(const std::string& path) {
        if (!path.empty()) file_.emplace(path, ByteInput("-"));
    }
    explicit operator bool() const { return file_.has_value(); }
    void write(const std::string& text) {
        file_->write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
        file_->commit();
    }
    void write(const Json& json) { write(json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'); }

  private:
    std::optional<ByteOutput> file_;
};

void check_directory(const std::string& path) {
    if (path.empty()) return;
    const std::filesystem::path directory = utf8_path(path), probe = directory / ".tq-run";
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error || !std::ofstream(probe).put('\n').flush())
        fail("nothing can be written into {}: name another folder with --dump", printable(path, 200));
    std::filesystem::remove(probe, error);
}

std::array<std::pair<const char*, std::vector<std::string>>, 3> lists(const ConformanceArguments& a) {
    return {{{"--filter", a.filters}, {"--filter-file", a.filter_files}, {"--exclude", a.excludes}}};
}

// Options of the worker: the flags that select and seed rows. The profile and the tuning go through the environment, because they
// are read when a device is opened. By default a stored tuning is ignored, so that a report means the same on each machine.
RunnerOptions runner_options(const ConformanceArguments& a) {
    RunnerOptions options = worker_options({"--seed", std::to_string(a.seed)});
    for (const auto& [flag, values] : lists(a))
        for (const std::string& value : values) options.worker.insert(options.worker.end(), {flag, value});
    if (!a.shard.empty()) options.worker.insert(options.worker.end(), {"--shard", a.shard});
    if (!a.subject.empty()) options.worker.insert(options.worker.end(), {"--subject", a.subject});
    if (a.full) options.worker.push_back("--full");
    if (a.repeat != 1) options.worker.insert(options.worker.end(), {"--repeat", std::to_string(a.repeat)});
    if (a.shuffle) options.worker.insert(options.worker.end(), {"--shuffle", std::to_string(*a.shuffle)});
    if (!a.dump.empty()) options.worker.insert(options.worker.end(), {"--dump", a.dump});
    options.dumps = !a.dump.empty();
    if (!a.profile.empty()) options.environment.push_back("TQ_DEVICE_PROFILE=" + a.profile);
    options.environment.push_back(a.tuned ? "TQ_TUNING=stored" : "TQ_TUNING=default");
    options.timeout = std::chrono::seconds(a.timeout);
    return options;
}

// The command line that repeats this run.
std::vector<std::string> command_line(const ConformanceArguments& a) {
    std::vector<std::string> out{
        "tq-run", "conformance", "--seed", std::to_string(a.seed), "--timeout", std::to_string(a.timeout)};
    for (const auto& [flag, values] : lists(a))
        for (const std::string& value : values) out.insert(out.end(), {flag, value});
    for (const auto& [flag, value] :
         {std::pair("--device", a.device), {"--profile", a.profile}, {"--shard", a.shard}, {"--expect", a.expect}})
        if (!value.empty()) out.insert(out.end(), {flag, value});
    if (a.full) out.push_back("--full");
    if (a.tuned) out.push_back("--tuned");
    if (a.repeat != 1) out.insert(out.end(), {"--repeat", std::to_string(a.repeat)});
    if (a.shuffle) out.insert(out.end(), {"--shuffle", std::to_string(*a.shuffle)});
    return out;
}

// The command that repeats one row of `device` when the row's name is appended after its --filter.
// It is printed for people to paste, so a value with spaces is quoted.
std::string again(const ConformanceArguments& a, const std::string& device) {
    std::string out = "tq-run conformance";
    const auto add = [&](const char* flag, const std::string& value) {
        if (!value.empty()) out += fmt::format(" {} {}", flag, value.find(' ') == std::string::npos ? value : "'" + value + "'");
    };
    add("--device", device);
    add("--profile", a.profile);
    if (a.seed != 1) add("--seed", std::to_string(a.seed));
    if (a.tuned) out += " --tuned";
    if (a.full) out += " --full";
    return out;
}

std::string profile_names() {
    std::string out;
    for (const DeviceProfile& profile : device_profiles()) out += fmt::format("{}{}", out.empty() ? "" : ", ", profile.name);
    return out;
}

int list_rows(const ConformanceArguments& a, ReportFile& report) {
    const auto device = find_device(a.device == "all" ? "" : a.device, WithoutGpu::software);
    if (!device) fail("no Vulkan driver can be used: tq-run doctor tells more");
    const std::vector<std::string> names = row_names(device->capabilities, a.selection());
    for (const std::string& name : names) write_output(name + '\n');
    if (report)
        report.write(Json{{"program", build_description()},
                          {"device", describe(device->capabilities)},
                          {"profile", a.profile},
                          {"rows", names}});
    if (names.empty()) write_error("tq-run: " + std::string(no_row_selected) + "\n");
    return names.empty() ? nothing_was_tested : 0;
}

// Runs a folder of --dump on a device, in this process.
int run_again(const ConformanceArguments& a) {
    Recording recording = read_recording(utf8_path(a.replay));
    if (!a.spirv.empty()) replace_module(recording, utf8_path(a.spirv));
    const auto device = find_device(a.device, WithoutGpu::software);
    if (!device) fail("no Vulkan driver can be used: tq-run doctor tells more");
    Rig rig(device->selector, {});
    write_text(fmt::format("{}\non {}\n", printable(recording.row, 1000), printable(device->capabilities.name)));
    const Replayed result = replay(rig, recording, [](const std::string& line) { write_text(line + '\n'); });
    if (result.compared + result.left_out == 0)
        write_text("NOT TESTED: it ran to its end here, but the recorded run ended before it had a result to compare with; "
                   "conformance --filter with the row's name runs the row itself\n");
    else if (result.compared == 0)
        write_text(fmt::format(
            "NOT TESTED: {} computed on the host from what the device wrote, as those of a whole model are, so "
            "no buffer can be compared; conformance --filter with the row's name runs the row itself\n",
            result.left_out == 1 ? "the result of this row is" : fmt::format("all {} results of this row are", result.left_out)));
    return result.compared == 0 ? nothing_was_tested : result.wrong == 0 ? 0 : 1;
}

DeviceReport test(RunnerOptions options, const ConformanceArguments& a, const std::string& selector, Console& console) {
    Table table(a.verbose, again(a, selector), text_columns());
    const TimeLeft left;
    const auto print = [&](const std::string& text) {
        if (text.empty()) return;
        console.clear_status();
        write_text(text);
    };
    options.on_begin = [&](size_t index, const std::vector<RowResult>& rows) {
        const RowResult& row = rows[index];
        const std::string rest = left.after(double(index), double(rows.size()));
        console.status(fmt::format("{} of {}{}: {}, {}, {}", index + 1, rows.size(), rest, row.kernel, row.variant, row.shape));
    };
    options.on_result = [&](size_t index, const std::vector<RowResult>& rows) { print(table.add(index, rows)); };
    DeviceReport report = test_device(options, selector);
    const size_t advice = report.failure.find(", or use --device cpu"); // which does not apply here
    if (advice != std::string::npos) report.failure.resize(advice);
    print(table.finish(report.rows));
    console.clear_status();
    return report;
}

// Names in --expect that no row of these devices has: a slip, or a row of another version.
void tell_unused(const Expectations& expectations, const Report& report) {
    std::vector<std::string> rows;
    for (const DeviceReport& device : report.devices)
        for (const RowResult& row : device.rows) rows.push_back(row.name());
    for (const std::string& name : expectations.unused(rows))
        write_error(fmt::format("tq-run: --expect: no row is called \"{}\"\n", printable(name, 200)));
}

// Everything that a user can get wrong is tried before the first row runs: what is read first, then what is written. Reports are
// written even after an interrupt, with the rows that are left as not run.
int run(const ConformanceArguments& a) {
    if (a.worker) return work(a);
    if (a.device == "cpu" || a.device == "none")
        throw UsageError(
            "conformance compares a Vulkan device with the reference, so it needs a Vulkan device: tq-run devices lists them");
    if (!a.replay.empty()) return run_again(a);
    if (a.list && !(a.junit + a.dump).empty())
        throw UsageError("--list runs no row, so it has nothing for --junit and --dump: leave them out, or --list");
    const Expectations expectations = a.expect.empty() ? Expectations() : Expectations(utf8_path(a.expect));
    const Selection selection = a.selection(); // for its errors
    ReportFile json(a.json), junit(a.junit);
    if (a.list) return list_rows(a, json);
    check_directory(a.dump);
    catch_interrupts();
    Console console(ColorMode::automatic, false);
    RunnerOptions options = runner_options(a);
    options.expected = [&](const std::string& row) { return expectations.of(row); };
    Report report{.program = build_description(),
                  .command_line = command_line(a),
                  .profile = a.profile,
                  .seed = a.seed,
                  .every_row = selection.every_row(),
                  .devices = {}};
    write_text(Table::header(text_columns()));
    const auto selectors = a.device == "all" ? usable_devices(options) : std::vector{a.device};
    for (const std::string& selector : selectors) {
        if (interrupted()) break;
        report.devices.push_back(test(options, a, selector, console));
    }
    write_text(summary(report));
    if (json) json.write(to_json(report));
    if (junit) junit.write(to_junit(report));
    if (interrupted()) return 130;
    if (selection.every_row()) tell_unused(expectations, report);
    return report.passed() ? 0 : report.nothing_tested() ? nothing_was_tested : 1;
}

} // namespace
} // namespace tq::conformance

void tq::add_conformance(ArgumentParser& app, Action& action) {
    using conformance::ConformanceArguments;
    const auto flags = [](ArgumentParser& command, ConformanceArguments& a) {
        add_option(command, "--device", a.device, "NAME",
                   "Vulkan device by index or part of its name (see tq-run devices), or all; default: the best device");
        add_option(command, "--filter", a.filters, "TEXT",
                   "run only rows with this in their name 'kernel | variant | shape', the one row of that name (see --list), or "
                   "those whose whole name a pattern with * and ? describes; several times: all of these")
            .take_all();
        add_option(command, "--filter-file", a.filter_files, "FILE",
                   "the same for each line of a file; lines with # are comments")
            .take_all();
        add_option(command, "--exclude", a.excludes, "TEXT", "run no such row; several times: none of these").take_all();
        add_option(
            command, "--expect", a.expect, "FILE",
            "file of rows that are known to fail, a line 'ROW,VERDICT' for each: that they pass, or fail otherwise, is an error");
        add_option(command, "--dump", a.dump, "DIR",
                   "write a folder here for each row that is wrong, crashes or hangs, with inputs, results, expected results, "
                   "SPIR-V, a row.json "
                   "that describes them and an AmberScript that runs alone");
        auto replay =
            add_option(command, "--replay", a.replay, "DIR", "run the row of a folder that --dump has written once more");
        add_option(command, "--spirv", a.spirv, "FILE", "with --replay: the module to run instead of the recorded one")
            .needs(replay);
        add_option(command, "--shard", a.shard, "K/N", "run only one part of the rows, such as 2/3 for the second of three")
            .check(parsed_by([](const std::string& text) { parse_shard(text); }));
        add_option(command, "--profile", a.profile, "NAME",
                   "limit the device to the features of a device profile: " + conformance::profile_names())
            .check(parsed_by([](const std::string& name) { find_device_profile(name); }));
        add_option(command, "--seed", a.seed, "N", "seed of the inputs; default: 1");
        add_option(command, "--repeat", a.repeat, "N", "run each row so many times, until it fails; default: 1")
            .check(number(1, 1'000'000));
        add_option(command, "--shuffle", a.shuffle, "N",
                   "run the rows in a random order, which N decides; default: in the order of --list");
        add_option(command, "--timeout", a.timeout, "SECONDS", "seconds a row may take; default: 60").check(number(1, 86400));
        add_option(command, "--json", a.json, "FILE", "write all results to this file, to attach to a bug report");
        add_option(command, "--junit", a.junit, "FILE", "write a JUnit report to this file");
        add_flag(command, "--list", a.list, "list the rows, and run none");
        add_flag(command, "--full", a.full, "run every type at every size, and the largest sizes");
        add_flag(command, "--tuned", a.tuned, "use the tuning that tq-run bench --tune has stored, not the default one");
        add_flag(command, "-v,--verbose", a.verbose, "print a line for every row");
        add_flag(command, "--worker", a.worker).group(""); // hidden, with the flags that it uses
        add_flag(command, "--list-devices", a.list_devices).group("");
        add_flag(command, "--record", a.record).group("");
        add_option(command, "--first", a.first, "", "").group("");
        add_option(command, "--subject", a.subject, "", "").group("");
    };
    add_command<ConformanceArguments>(app, action, "conformance", "Check every kernel of a device against the CPU reference",
                                      flags, conformance::run);
}
