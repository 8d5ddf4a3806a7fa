// Results for people, for programs and for CI. The table shows a line for each kernel and variant, with the worst row's share of
// its limit, and each failed row in full with the command that repeats it. A verdict claims no more than what was run: CONFORMANT
// is said only if every row ran, passed, and none was expected to fail.
// JUnit: a wrong answer is a failure, no answer (crash, hang, lost device) is an error, and a row that was not run is an error,
// too. driver_environment() lists the variables that change what drivers and loaders do, without passwords.
#include "tools/check/conformance/report.h"
#include "base/child_process.h"
#include "base/environment.h"
#include "base/executable.h"
#include "base/printable.h"
#include "base/redacted.h"
#include "runtime/device.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

namespace tq::conformance {
namespace {

bool same_group(const RowResult& a, const RowResult& b) { return a.kernel == b.kernel && a.variant == b.variant; }

double share(const RowResult& row) { return row.limit > 0 ? row.error / row.limit : row.error; }

// "3.1e-07 of 2e-06", "exact"
std::string measure(const RowResult& row) {
    if (row.error == 0 && row.limit == 0) return "exact";
    return row.limit > 0 ? fmt::format("{:.2g} of {:.2g}", row.error, row.limit) : fmt::format("{:.2g}", row.error);
}

// The widths of the columns before the verdict. A terminal that is narrower than all of them shows less of variant and shape, and
// then no measure.
struct Widths {
    size_t kernel = 22, variant = 28, what = 46, result = 20;
    bool narrow = false; // longer names are cut

    explicit Widths(uint32_t columns) {
        constexpr size_t verdict = 16, least_variant = 10, narrow_what = 8, narrow_result = 18, passed = 7;
        if (columns == 0 || columns > kernel + variant + what + result + verdict) return;
        narrow = true;
        what = narrow_what;
        result = columns > kernel + least_variant + what + narrow_result + passed + 4 ? narrow_result : 0;
        const size_t others = kernel + what + result + passed + 5;
        variant = columns > others + least_variant ? std::min(variant, columns - others) : least_variant;
    }
};

std::string line(const Widths& widths, std::string_view kernel, std::string_view variant, std::string_view what,
                 const std::string& result, std::string_view verdict) {
    const auto cell = [&](std::string_view text, size_t width) {
        if (widths.narrow && text.size() > width) return fmt::format("{}...", text.substr(0, width - 3));
        return fmt::format("{:<{}}", text, width);
    };
    std::string text =
        fmt::format("{} {} {} ", cell(kernel, widths.kernel), cell(variant, widths.variant), cell(what, widths.what));
    if (widths.result != 0) text += cell(result, widths.result) + ' ';
    text += verdict;
    return text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
}

std::string values(const Json& constants) {
    std::string out;
    for (const auto& [name, value] : constants.items()) out += fmt::format(" {}={}", name, value.get<uint32_t>());
    return out.empty() ? " none" : out;
}

std::string words(const Json& all) {
    std::string out;
    for (const Json& word : all) out += fmt::format(" {:08x}", word.get<uint32_t>());
    return out.empty() ? " none" : out;
}

std::string sizes(const Json& all) {
    return fmt::format("{} x {} x {}", all.at(0).get<uint32_t>(), all.at(1).get<uint32_t>(), all.at(2).get<uint32_t>());
}

// Helps to find out why a row failed: what it ran, and how to run it again.
std::string details(const RowResult& row, const std::string& again) {
    std::string text;
    for (const Json& d : row.dispatches)
        text += fmt::format("    ran {}: workgroup {}, {} workgroups; constants:{}; push constants:{}\n",
                            d.at("spirv").get<std::string>(), sizes(d.at("workgroup")), sizes(d.at("groups")),
                            values(d.at("constants")), words(d.at("push_constants")));
    if (!row.dump.empty()) text += fmt::format("    inputs, results and modules are in {}\n", row.dump);
    return text + fmt::format("    run it again: {} --filter '{} | {} | {}'\n", again, row.kernel, row.variant, row.shape);
}

// "FAILED: crashed"; "wrong, as expected"; "FAILED: passed, but wrong was expected"
std::string verdict_text(const RowResult& row) {
    if (row.as_expected()) return fmt::format("{}, as expected", name(row.verdict));
    if (!row.is_bad()) return std::string(name(row.verdict));
    return fmt::format("FAILED: {}{}", name(row.verdict),
                       row.expected ? fmt::format(", but {} was expected", name(*row.expected)) : "");
}

std::string row_line(const RowResult& row, const std::string& again, const Widths& widths) {
    const bool has_room = !widths.narrow || row.shape.size() <= widths.what;
    std::string text = line(widths, row.kernel, row.variant, has_room ? row.shape : "1 row", measure(row), verdict_text(row));
    if (!has_room) text += "    " + row.shape + '\n';
    if (!row.reason.empty()) text += "    " + row.reason + '\n';
    return is_failure(row.verdict) && row.is_bad() ? text + details(row, again) : text;
}

// Returns one line for all rows, with the error of the worst one, and the failed rows in full.
// The worst row is that with the greatest share of its limit, among the failed ones if there are any: the share of a row that
// passed says nothing beside it.
std::string group_lines(std::span<const RowResult> rows, const std::string& again, const Widths& widths) {
    if (rows.size() == 1) return row_line(rows[0], again, widths);
    size_t failed = 0, skipped = 0, expected = 0;
    const RowResult* worst = nullptr; // of the failed ones, if there are any
    std::string failures;
    for (const RowResult& row : rows) {
        const bool fails = row.is_bad(), better = worst != nullptr && worst->is_bad() && !fails;
        if (row.as_expected()) expected++;
        if (row.verdict == Verdict::not_supported) skipped++;
        if (row.verdict != Verdict::not_supported && !row.as_expected() && !better &&
            (!worst || (fails && failed == 0) || share(row) > share(*worst)))
            worst = &row;
        if (fails) failed++, failures += row_line(row, again, widths);
    }
    const std::string what = fmt::format("{} rows", rows.size());
    std::string verdict = failed != 0 ? fmt::format("{} FAILED", failed) : "passed";
    if (failed == 0 && expected != 0) verdict += fmt::format(", {} failed as expected", expected);
    if (failed == 0 && skipped != 0) verdict += fmt::format(", {} not supported", skipped);
    return line(widths, rows[0].kernel, rows[0].variant, what, worst ? measure(*worst) : "", verdict) + failures;
}

std::string version(uint32_t v) { return fmt::format("{}.{}.{}", (v >> 22) & 0x7f, (v >> 12) & 0x3ff, v & 0xfff); }

std::string text_of(const Json& device, const char* key) {
    const auto found = device.find(key);
    return found == device.end() ? "?" : found->is_string() ? found->get<std::string>() : found->dump();
}

Json counts(const DeviceReport& device) {
    Json out;
    for (const auto& [verdict, its_name] : verdict_names) out[std::string(its_name)] = device.count(verdict);
    out["as expected"] = device.as_expected();
    out["unexpected"] = device.bad();
    return out;
}

Json to_json(const RowResult& row) {
    Json out{{"kernel", row.kernel},         {"variant", row.variant}, {"shape", row.shape},
             {"verdict", name(row.verdict)}, {"error", row.error},     {"limit", row.limit},
             {"reason", row.reason},         {"ms", row.ms},           {"dispatches", row.dispatches}};
    if (row.expected) out["expected"] = name(*row.expected);
    return out;
}

// Escapes text for an attribute: without control characters, which XML cannot hold.
std::string xml(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '&')
            out += "&amp;";
        else if (c == '"')
            out += "&quot;";
        else
            out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
}

// A failure is a wrong answer, and a pass that was not expected; an error is no answer.
bool is_junit_failure(const RowResult& row) {
    return row.is_bad() && (row.verdict == Verdict::wrong || row.verdict == Verdict::passed);
}
bool is_junit_error(const RowResult& row) { return (row.is_bad() && !is_junit_failure(row)) || row.verdict == Verdict::not_run; }
bool is_junit_skipped(const RowResult& row) { return row.as_expected() || row.verdict == Verdict::not_supported; }

std::string junit_case(const RowResult& row) {
    std::string text = fmt::format("    <testcase classname=\"{}\" name=\"{} | {}\" time=\"{:.4f}\">", xml(row.kernel),
                                   xml(row.variant), xml(row.shape), row.ms / 1000);
    const std::string message =
        xml(row.reason.empty() ? verdict_text(row) : fmt::format("{}: {}", verdict_text(row), row.reason));
    if (is_junit_failure(row))
        text += fmt::format("<failure type=\"{}\" message=\"{}\">{}</failure>", name(row.verdict), message, xml(measure(row)));
    else if (is_junit_error(row))
        text += fmt::format("<error type=\"{}\" message=\"{}\"/>", name(row.verdict), message);
    else if (is_junit_skipped(row))
        text += fmt::format("<skipped message=\"{}\"/>", message);
    return text + "</testcase>\n";
}

// A device that failed as a whole is a test case of its own, "device": its rows alone would not say so, since there may be none.
std::string junit_suite(const DeviceReport& device) {
    const std::string title = heading(device);
    std::string text = fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n", xml(title),
        device.rows.size() + (device.failure.empty() ? 0 : 1), std::ranges::count_if(device.rows, is_junit_failure),
        std::ranges::count_if(device.rows, is_junit_error) + (device.failure.empty() ? 0 : 1),
        std::ranges::count_if(device.rows, is_junit_skipped), device.seconds);
    if (!device.failure.empty())
        text += fmt::format("    <testcase classname=\"device\" name=\"{}\" time=\"0\"><error message=\"{}\"/></testcase>\n",
                            xml(title), xml(device.failure));
    for (const RowResult& row : device.rows) text += junit_case(row);
    return text + "  </testsuite>\n";
}

// The driver's version in its vendor's notation.
std::string driver_version(const Json& device) {
    if (!device.contains("driver_version") || !device.at("driver_version").is_number()) return "?";
    const auto v = device.at("driver_version").get<uint32_t>();
    if (text_of(device, "driver_name").find("NVIDIA") != std::string::npos)
        return fmt::format("{}.{}.{}.{}", v >> 22, (v >> 14) & 0xff, (v >> 6) & 0xff, v & 0x3f);
    return fmt::format("{}.{}.{}", v >> 22, (v >> 12) & 0x3ff, v & 0xfff);
}

// Claims no more than what was run.
std::string verdict_of(const DeviceReport& device, bool every_row) {
    const size_t failed = device.bad(), not_run = device.count(Verdict::not_run), expected = device.as_expected();
    const std::string known = expected == 0 ? "" : fmt::format("; {} failed as expected", expected);
    if (device.passed() && every_row && expected == 0) return "CONFORMANT: it computes what the reference computes.";
    if (device.passed()) {
        const size_t ran = device.count(Verdict::passed);
        if (ran == 0) return fmt::format("no row agrees with the reference{}.", known);
        return ran == 1 ? fmt::format("the one row that was run agrees with the reference{}.", known)
                        : fmt::format("the {} rows that were run agree with the reference{}.", ran, known);
    }
    if (device.rows.empty()) return "NOT TESTED: " + device.failure + '.';
    if (device.nothing_tested() && device.failure.empty()) return "NOT TESTED: it supports none of the rows.";
    std::string text = failed != 0 ? fmt::format("NOT CONFORMANT: {} of {} rows failed", failed, device.rows.size())
                                   : "NOT KNOWN TO BE CONFORMANT";
    if (not_run != 0) text += fmt::format("{}{} rows were not run", failed != 0 ? ", " : ": ", not_run);
    if (!device.failure.empty()) text += " (" + device.failure + ')';
    return text + known + '.';
}

// "3 passed, 2 wrong, 1 crashed"; a verdict other than `passed` appears only if a row has it.
std::string counts_text(const DeviceReport& device) {
    std::string text = fmt::format("{} passed", device.count(Verdict::passed));
    for (const auto& [verdict, its_name] : verdict_names)
        if (const size_t count = device.count(verdict); count != 0 && verdict != Verdict::passed)
            text += fmt::format(", {} {}", count, its_name);
    return text;
}

} // namespace

Json driver_environment() {
    constexpr std::array prefixes{"VK_",  "TQ_",  "MESA_", "LP_",      "RADV_",  "ANV_",  "INTEL_",          "NVK_",
                                  "NAK_", "MVK_", "TU_",   "GALLIUM_", "LIBGL_", "DRI_",  "ENABLE_",         "DISABLE_",
                                  "IR3_", "PAN_", "V3D_",  "AGX_",     "ASAHI_", "__GL_", "LD_LIBRARY_PATH", "SWIFTSHADER_"};
    Json out = Json::object();
    for (const std::string& variable : environment_variables()) {
        const std::string name = variable.substr(0, variable.find('=', 1));
        const auto changes = [&](const char* prefix) { return name.starts_with(prefix); };
        if (name.size() < variable.size() && std::ranges::any_of(prefixes, changes))
            out[name] = redacted(name, std::string_view(variable).substr(name.size() + 1));
    }
    return out;
}

// True if some device has tested nothing and each of the others has passed or tested nothing either, or if there is no device. A
// failure says more than an empty run, and comes first.
bool Report::nothing_tested() const {
    if (devices.empty()) return true;
    return std::ranges::any_of(devices, &DeviceReport::nothing_tested) &&
           std::ranges::all_of(devices, [](const DeviceReport& one) { return one.passed() || one.nothing_tested(); });
}

bool Report::passed() const { return !devices.empty() && std::ranges::all_of(devices, &DeviceReport::passed); }

std::string Table::header(uint32_t columns) {
    return line(Widths(columns), "kernel", "variant", "shape", "error of limit", "verdict") +
           "(error: ||result - reference|| / ||reference||, or words that differ. Variants are choices of tile and workgroup "
           "sizes: \"own\" "
           "is this device's\nown choice, \"of a GPU\" and \"of a CPU driver\" those of other devices, \"small tiles\" the "
           "smallest, "
           "with many partial tiles.)\n";
}

// Rows come in their order, in which all rows of a kernel and variant are neighbours. So a group is complete when the next row
// belongs to another; its line is written then.
std::string Table::add(size_t index, const std::vector<RowResult>& rows) {
    if (every_row_) return row_line(rows[index], again_, Widths(columns_));
    if (index + 1 < rows.size() && same_group(rows[index], rows[index + 1])) return "";
    const size_t begin = std::exchange(group_, index + 1);
    return group_lines(std::span(rows).subspan(begin, group_ - begin), again_, Widths(columns_));
}

// A run that was stopped leaves a group of which only the first rows were run: these are shown.
std::string Table::finish(const std::vector<RowResult>& rows) {
    size_t end = group_;
    while (end < rows.size() && rows[end].verdict != Verdict::not_run) end++;
    if (every_row_ || end == group_) return "";
    return group_lines(std::span(rows).subspan(group_, end - group_), again_, Widths(columns_));
}

std::string heading(const DeviceReport& device) {
    if (!device.device.is_object()) return device.selector.empty() ? "the best device" : "device " + device.selector;
    const std::string info = text_of(device.device, "driver_info");
    return fmt::format("{} ({}{}{}, driver version {}, Vulkan {})", text_of(device.device, "name"),
                       text_of(device.device, "driver_name"), info.empty() ? "" : ", ", info, driver_version(device.device),
                       text_of(device.device, "api_version"));
}

std::string summary(const Report& report) {
    std::string text = "\n";
    for (const DeviceReport& device : report.devices) {
        text += heading(device) + '\n';
        if (!report.profile.empty()) text += "  profile " + report.profile + '\n';
        text += fmt::format("  {}; seed {}, {:.1f} s\n", counts_text(device), report.seed, device.seconds);
        for (const std::string& filter : device.unmatched)
            text += fmt::format("  no row is called \"{}\"\n", printable(filter, 200));
        text += "  " + verdict_of(device, report.every_row) + '\n';
    }
    return text;
}

Json to_json(const Report& report) {
    Json devices = Json::array();
    for (const DeviceReport& device : report.devices) {
        Json rows = Json::array();
        for (const RowResult& row : device.rows) rows.push_back(to_json(row));
        devices.push_back({{"selector", device.selector},
                           {"passed", device.passed()},
                           {"failure", device.failure},
                           {"unmatched", device.unmatched},
                           {"counts", counts(device)},
                           {"seconds", device.seconds},
                           {"device", device.device},
                           {"rows", rows}});
    }
    return {{"program", report.program}, {"command_line", report.command_line},        {"passed", report.passed()},
            {"system", system_name()},   {"vulkan_loader", version(loader_version())}, {"profile", report.profile},
            {"seed", report.seed},       {"environment", driver_environment()},        {"devices", devices}};
}

std::string to_junit(const Report& report) {
    std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tq-run conformance\">\n";
    for (const DeviceReport& device : report.devices) text += junit_suite(device);
    return text + "</testsuites>\n";
}

} // namespace tq::conformance
