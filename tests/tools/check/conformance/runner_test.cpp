// The parent's reading of a worker's output: scripts in place of the worker print what a driver could add to it, or take from it.
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tools/check/conformance/report.h"
#include "tools/check/conformance/runner.h"
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sstream>

using namespace tq::conformance;
using tq::test::contains;

namespace {

const std::string opened = R"({"device": {"name": "one"}, "rows": [["a", "b", "0"], ["a", "b", "1"], ["a", "b", "2"]]})";
const std::string end = R"({"end": true})";

std::string begin(int row) { return fmt::format(R"({{"begin": {}}})", row); }
std::string result(int row) { return fmt::format(R"({{"row": {}, "verdict": "passed", "error": 0, "limit": 0}})", row); }

RunnerOptions options(const tq::test::TemporaryFile& script) {
    RunnerOptions out;
    out.worker = {"sh", script.path().string()};
    out.timeout = std::chrono::seconds(20);
    out.interrupted = [] { return false; };
    out.on_begin = out.on_result = [](size_t, const std::vector<RowResult>&) {};
    return out;
}

tq::test::TemporaryFile printing(const std::vector<std::string>& lines) {
    std::string script;
    for (const std::string& line : lines) script += "cat <<'END'\n" + line + "\nEND\n";
    return tq::test::TemporaryFile(script);
}

// The report of a worker that prints these lines. The reports are written, too.
DeviceReport report_of(const std::vector<std::string>& lines) {
    const tq::test::TemporaryFile script = printing(lines);
    Table table(true, "again");
    RunnerOptions with = options(script);
    with.on_result = [&](size_t index, const std::vector<RowResult>& rows) { table.add(index, rows); };
    DeviceReport report = test_device(with, "");
    const Report all{.devices = {report}};
    CHECK(!summary(all).empty());
    CHECK(!to_json(all).dump().empty());
    CHECK(!to_junit(all).empty());
    return report;
}

} // namespace

TEST_CASE("a driver's own JSON is no message") {
    std::vector<std::string> lines{R"({"rows": 3, "device": {}})",
                                   R"({"rows": [["a"]], "device": {"name": "two"}})",
                                   R"({"rows": [[1, 2, 3]], "device": {"name": "two"}})",
                                   R"({"rows": [], "device": "two"})",
                                   R"({"begin": 0})",
                                   R"({"row": 0})",
                                   R"({"failed": 3})",
                                   opened};
    for (const char* line :
         {"{",
          "{}",
          "[1]",
          "3",
          R"({"begin": -1})",
          R"({"begin": 3})",
          R"({"begin": "0"})",
          R"({"begin": null})",
          R"({"begin": true})",
          R"({"row": 99, "verdict": "passed"})",
          R"({"row": -1, "verdict": "passed"})",
          R"({"row": {}, "verdict": "passed"})",
          R"({"row": 0})",
          R"({"row": 0, "verdict": "good"})",
          R"({"row": 0, "verdict": 1})",
          R"({"row": 0, "verdict": "wrong", "reason": 1})",
          R"({"row": 0, "verdict": "wrong", "no_memory": "no"})",
          R"({"row": 0, "verdict": "wrong", "dump": []})",
          R"({"row": 0, "verdict": "wrong", "dispatches": 1})",
          R"({"row": 0, "verdict": "wrong", "dispatches": [1]})",
          R"({"row": 0, "verdict": "wrong", "dispatches": [{}]})",
          R"({"row": 0, "verdict": "wrong", "dispatches": [{"spirv": "a", "workgroup": [1], "groups": [1, 1, 1],
              "constants": {}, "push_constants": []}]})",
          R"({"row": 0, "verdict": "wrong", "dispatches": [{"spirv": "a", "workgroup": [1, 1, 1], "groups": [1, 1, 1],
              "constants": {"c": "d"}, "push_constants": []}]})",
          R"({"end": "of something"})",
          R"({"failed": {"why": 1}})"})
        lines.push_back(line);
    for (int row = 0; row < 3; row++) lines.insert(lines.end(), {begin(row), result(row)});
    lines.insert(lines.end(), {R"({"begin": 0})", R"({"row": 0, "verdict": "wrong"})", end});
    const DeviceReport report = report_of(lines);
    CHECK_MESSAGE(report.passed(), summary({.devices = {report}}));
    CHECK(report.rows.size() == 3);
    CHECK(report.device.at("name") == "one");
}

TEST_CASE("a device may have descriptions of any kind") {
    const DeviceReport report = report_of(
        {R"({"device": {"name": 1, "driver_version": 2, "driver_name": 3, "api_version": []}, "rows": [["a", "b", "0"]]})",
         begin(0), result(0), end});
    CHECK(report.passed());
}

TEST_CASE("a row whose result is garbled is an error that says what came instead") {
    const std::string garbled = R"({"row": 1, "verWARNING: a driver speaksdict": "passed"})";
    for (const std::vector<std::string>& last : {std::vector{begin(2), result(2), end}, {result(2), end}}) {
        std::vector<std::string> lines{opened, begin(0), result(0), begin(1), garbled};
        lines.insert(lines.end(), last.begin(), last.end());
        const DeviceReport report = report_of(lines);
        CHECK(!report.passed());
        REQUIRE(report.rows.size() == 3);
        CHECK(report.rows[0].verdict == Verdict::passed);
        CHECK(report.rows[1].verdict == Verdict::error);
        CHECK(contains(report.rows[1].reason, "its result did not arrive; it last said: {"));
        CHECK(contains(report.rows[1].reason, "a driver speaks"));
        CHECK(report.rows[2].verdict == Verdict::passed);
    }
    const DeviceReport last = report_of({opened, begin(0), result(0), begin(1), result(1), begin(2), "no result", end});
    CHECK(last.rows[2].verdict == Verdict::error);
    CHECK(contains(last.rows[2].reason, "its result did not arrive; it last said: no result"));
    const DeviceReport none = report_of({"garbled" + opened, begin(0), result(0), end});
    CHECK(none.rows.empty());
    CHECK(contains(none.failure, "the list of rows did not arrive; it last said: garbled"));
}

TEST_CASE("a list of devices beside a driver's own JSON") {
    const auto script = printing({R"({"driver": "speaks"})", R"({"devices": [1], "all": []})", R"({"devices": "all"})",
                                  R"({"devices": ["0"], "all": [1]})", R"({"failed": []})", "{",
                                  R"({"devices": ["0"], "all": [{"name": "one"}]})"});
    const Listing listing = list_devices_apart(options(script));
    CHECK(listing.death == "");
    CHECK(listing.usable == std::vector<std::string>{"0"});
    CHECK(listing.all.size() == 1);
    const auto silent = printing({R"({"driver": "speaks"})"});
    const Listing none = list_devices_apart(options(silent));
    CHECK(contains(none.death, "the process that ran it ended: exit status 0; it last said: {"));
}

TEST_CASE("a driver that prints without end hangs its row") {
    const tq::test::TemporaryFile script("[ $2 = 0 ] || { echo '" + end + "'; exit; }\necho '" + opened + "'\necho '" + begin(0) +
                                         "'\nwhile :; do echo '{\"noise\": 1}'; done\n");
    RunnerOptions with = options(script);
    with.timeout = std::chrono::seconds(3); // also for the worker's first lines
    const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    with.interrupted = [&] { return std::chrono::steady_clock::now() > enough; };
    const DeviceReport report = test_device(with, "");
    CHECK(report.failure == "");
    REQUIRE(report.rows.size() == 3);
    CHECK(report.rows[0].verdict == Verdict::hung);
    CHECK(report.rows[0].reason == "no answer within 3 s; it last said: {\"noise\": 1} / {\"noise\": 1} / {\"noise\": 1}");
}

TEST_CASE("no row of the table is wider than a terminal of 80 columns") {
    const auto row = [](const char* variant, const char* shape) {
        return RowResult{.kernel = "attention_pages_long_name",
                         .variant = variant,
                         .shape = shape,
                         .verdict = Verdict::passed,
                         .error = 3.14e-7,
                         .limit = 2e-6,
                         .dispatches = {}};
    };
    const std::vector<RowResult> rows{row("small tiles, workgroups of 64, f16", "17 x 3"),
                                      row("small tiles, workgroups of 64, f16", "18 x 3"),
                                      row("own", "130 tokens of 3 heads of 128, window 64, tq4/tq3")};
    const auto lines = [&](Table table, uint32_t columns) {
        std::string text = Table::header(columns);
        text = text.substr(0, text.find('\n') + 1);
        for (size_t i = 0; i < rows.size(); i++) text += table.add(i, rows);
        std::vector<std::string> out;
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) out.push_back(line);
        return out;
    };
    for (const bool every_row : {false, true})
        for (const uint32_t columns : {60u, 80u, 100u}) {
            CAPTURE(columns);
            for (const std::string& line : lines(Table(every_row, "again", columns), columns)) {
                CAPTURE(line);
                CHECK(line.size() < columns);
            }
        }
    const auto narrow = lines(Table(false, "again", 80), 80), wide = lines(Table(false, "again"), 0);
    REQUIRE(narrow.size() == 4);
    CHECK(contains(narrow[1], "2 rows   3.1e-07 of 2e-06   passed"));
    CHECK(contains(narrow[2], " 1 row "));
    CHECK(narrow[3] == "    130 tokens of 3 heads of 128, window 64, tq4/tq3");
    REQUIRE(wide.size() == 3);
    CHECK(contains(wide[2], "window 64, tq4/tq3"));
}
