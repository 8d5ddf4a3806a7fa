// tq-run conformance as its users see it, including rows that crash, hang or lose the device. The rows themselves are tested by
// running them: conformance@DRIVER.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tools/check/conformance/selection.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

using namespace tq::test;

namespace {

constexpr int nothing_tested = 77;

// `filter` selects a few quick rows; `fault` as TQ_CONFORMANCE_FAULT.
Finished conformance(std::vector<std::string> more, const std::string& filter = "integers", const std::string& fault = "") {
    std::vector<std::string> arguments{TQ_RUN, "conformance"};
    if (!filter.empty()) arguments.insert(arguments.end(), {"--filter", filter});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({arguments, "", {"TQ_CONFORMANCE_FAULT=" + fault}});
}

nlohmann::json report(const std::string& filter, const std::string& fault, int expected_status,
                      std::vector<std::string> more = {}) {
    const TemporaryFile file;
    more.insert(more.end(), {"--json", file.path().string()});
    const Finished finished = conformance(more, filter, fault);
    INFO(finished.output, finished.error);
    CHECK(finished.status == expected_status);
    nlohmann::json json;
    std::ifstream(file.path()) >> json;
    return json;
}

// The reason of the only failed row, which has that verdict.
std::string only_failure(const nlohmann::json& json, const char* verdict) {
    std::string reason;
    int failed = 0;
    for (const auto& row : json.at("devices")[0].at("rows")) {
        if (row.at("verdict") == "passed") continue;
        CHECK(row.at("verdict") == verdict);
        reason = row.at("reason");
        failed++;
    }
    CHECK(failed == 1);
    return reason;
}

} // namespace

TEST_CASE("rows that pass: a table, a verdict, status 0") {
    const Finished finished = conformance({});
    INFO(finished.output, finished.error);
    CHECK(finished.status == 0);
    CHECK(contains(finished.output, "umulExtended, high"));
    CHECK(contains(finished.output, "rows that were run agree with the reference."));
    CHECK_FALSE(contains(finished.output, "CONFORMANT")); // a few rows do not prove that
    CHECK(contains(finished.output, "kernel "));
}

TEST_CASE("the report for a bug: device, rows, environment; inputs follow the seed") {
    const auto json = report("rms_norm", "", 0, {"--seed", "7"});
    CHECK(json.at("passed") == true);
    CHECK(json.at("seed") == 7);
    CHECK(json.at("environment").contains("TQ_CONFORMANCE_FAULT"));
    const auto& device = json.at("devices")[0];
    CHECK(device.at("device").at("storage_range_bytes") >= 128u << 20);
    CHECK(device.at("counts").at("passed") == device.at("rows").size());
    CHECK(device.at("rows")[0].at("error") < device.at("rows")[0].at("limit"));
    CHECK(report("rms_norm", "", 0, {"--seed", "7"}).at("devices")[0].at("rows")[0].at("error") ==
          device.at("rows")[0].at("error"));
}

TEST_CASE("a row tells what it ran") {
    const auto json = report("rms_norm", "", 0);
    const auto& row = json.at("devices")[0].at("rows")[0];
    REQUIRE(!row.at("dispatches").empty());
    const auto& dispatch = row.at("dispatches")[0];
    CHECK(dispatch.at("kernel") == "rms_norm");
    CHECK(dispatch.at("spirv") == "rms_norm.spv");
    CHECK(dispatch.at("constants").at("workgroup") == dispatch.at("workgroup")[0]);
    CHECK(dispatch.at("push_constants")[0] == 32); // columns
}

TEST_CASE("a row of that very name is run alone, and a failed one says how") {
    const std::string list = conformance({"--list"}, "integers").output, name = list.substr(0, list.find('\n'));
    const Finished one = conformance({}, name);
    CHECK(contains(one.output, "the one row that was run agrees with the reference."));
    const Finished lost = conformance({}, "integers", "lost:" + name);
    CHECK(contains(lost.output, "run it again: tq-run conformance --filter '" + name + "'"));
    CHECK_FALSE(contains(lost.output, "exact                FAILED"));
}

TEST_CASE("a row that crashes fails, and the others run") {
    const std::string reason = only_failure(report("integers", "crash:integers | -", 1), "crashed");
    CHECK(contains(reason, "the process that ran it ended: "));
}

TEST_CASE("a row that hangs fails, and the others run") {
    const std::string reason = only_failure(report("integers", "hang:integers | -", 1, {"--timeout", "2"}), "hung");
    CHECK(contains(reason, "no answer within 2 s"));
}

TEST_CASE("a row that loses the device fails, and the others run on a new one") {
    const std::string reason = only_failure(report("integers", "lost:integers | -", 1), "device lost");
    CHECK(contains(reason, "VK_ERROR_DEVICE_LOST"));
}

TEST_CASE("where every row crashes it gives up") {
    const auto device = report("integers", "crash:integers", 1).at("devices")[0];
    CHECK(contains(device.at("failure").get<std::string>(), "5 workers in a row ended"));
    CHECK(device.at("counts").at("crashed") == 5);
    CHECK(device.at("counts").at("not run") == device.at("rows").size() - 5);
}

TEST_CASE("JUnit: every row a case, a failed one with its reason") {
    const TemporaryFile file;
    CHECK(conformance({"--junit", file.path().string()}, "integers", "lost:integers | <<").status == 1);
    std::ifstream stream(file.path());
    const std::string xml{std::istreambuf_iterator<char>(stream), {}};
    CHECK(contains(xml, "failures=\"0\" errors=\"1\" skipped=\"0\""));
    CHECK(contains(xml, "name=\"&lt;&lt; | 20011 numbers\""));
    CHECK(contains(xml, "<error type=\"device lost\" message=\"FAILED: device lost: the GPU stopped answering"));
}

TEST_CASE("what cannot be run is said") {
    const Finished no_rows = conformance({}, "no such row");
    CHECK(no_rows.status == nothing_tested);
    CHECK(contains(no_rows.output, "no row is selected by --filter"));
    CHECK(contains(no_rows.output, "no row is called \"no such row\""));
    const Finished no_list = conformance({"--list"}, "no such row");
    CHECK(no_list.status == nothing_tested);
    CHECK(contains(no_list.error, "no row is selected by --filter"));
    for (const char* flag : {"--junit", "--dump"}) {
        const Finished nothing_written = conformance({"--list", flag, "/tmp/nothing"});
        CHECK(nothing_written.status == 2);
        CHECK(contains(nothing_written.error, "--list runs no row"));
    }
    const Finished processor = conformance({"--device", "cpu"});
    CHECK(processor.status == 2);
    CHECK(contains(processor.error, "conformance compares a Vulkan device with the reference"));
    const Finished no_driver = run({{TQ_RUN, "conformance"}, "", {"VK_ICD_FILENAMES=/none.json", "VK_DRIVER_FILES=/none.json"}});
    CHECK(no_driver.status == nothing_tested);
    CHECK(contains(no_driver.output, "NOT TESTED"));
    CHECK_FALSE(contains(no_driver.output, "--device cpu"));
    const Finished no_device = conformance({"--device", "no such device"});
    CHECK(no_device.status == nothing_tested);
    CHECK(contains(no_device.output, "no such device"));
    const Finished no_file = conformance({"--json", "/no/such/folder/report.json"});
    CHECK(no_file.status == 1);
    CHECK(contains(no_file.error, "cannot write /no/such/folder/report.json"));
}

TEST_CASE("shards have every row among them, once") {
    std::string all;
    for (const char* shard : {"1/3", "2/3", "3/3"}) {
        const Finished part = conformance({"--list", "--shard", shard}, "");
        CHECK(part.status == 0);
        CHECK(!part.output.empty());
        all += part.output;
    }
    const auto lines = [](const std::string& text) {
        std::multiset<std::string> out;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);) out.insert(line);
        return out;
    };
    CHECK(lines(all) == lines(conformance({"--list"}, "").output));
    CHECK(report("integers", "", 0, {"--shard", "1/1"}).at("devices")[0].at("rows").size() > 5);
    for (const char* wrong : {"0/3", "4/3", "1", "1/3x", "/"}) {
        const Finished refused = conformance({"--shard", wrong});
        CHECK(refused.status == 2);
        CHECK(contains(refused.error, "2/3"));
    }
}

TEST_CASE("--list names the rows, --device all tests every device") {
    const Finished list = conformance({"--list"}, "swiglu");
    CHECK(list.status == 0);
    CHECK(contains(list.output, "swiglu | own | 32 columns, 1 tokens\n"));
    CHECK(conformance({"--device", "all"}).status == 0);
}

TEST_CASE("a report has the variables that matter, and no password") {
    const TemporaryFile file;
    REQUIRE(run({{TQ_RUN, "conformance", "--filter", "integers", "--json", file.path().string()},
                 "",
                 {"TQ_RUN_API_KEY=sk-hidden", "TQ_CACHE_SHARED=redis://:hidden@store"}})
                .status == 0);
    const std::string text = slurp(file.path());
    CHECK_FALSE(contains(text, "hidden"));
    const auto environment = nlohmann::json::parse(text).at("environment");
    CHECK(environment.at("TQ_RUN_API_KEY") == "***");
    CHECK(environment.at("TQ_CACHE_SHARED") == "redis://***@store");
}

namespace {

std::multiset<std::string> listed(std::vector<std::string> more) {
    more.insert(more.begin(), {TQ_RUN, "conformance", "--list"});
    const Finished list = run({more, "", {}});
    CHECK_MESSAGE(list.status == (list.output.empty() ? nothing_tested : 0), list.error);
    std::multiset<std::string> out;
    std::istringstream stream(list.output);
    for (std::string line; std::getline(stream, line);) out.insert(line);
    return out;
}

} // namespace

TEST_CASE("filters are given several times, as patterns, in files; others are left out") {
    const auto all = listed({}), integers = listed({"--filter", "integers |"}), swiglu = listed({"--filter", "SwiGLU |"});
    REQUIRE(!integers.empty());
    REQUIRE(!swiglu.empty());
    auto both = integers;
    both.insert(swiglu.begin(), swiglu.end());
    CHECK(listed({"--filter", "integers |", "--filter", "swiglu |"}) == both);
    CHECK(listed({"--filter", "integers *"}) == integers);
    CHECK(listed({"--filter", "*ntegers | * | 20011 number?"}) == integers);
    CHECK(listed({"--filter", "integers"}).size() >= integers.size());
    CHECK(listed({"--filter", "integer"}) == listed({"--filter", "*integer*"}));
    CHECK(listed({"--filter", "integers |", "--filter", "swiglu |", "--exclude", "swiglu*"}) == integers);
    const std::string one = *integers.begin();
    CHECK(listed({"--filter", one}) == std::multiset<std::string>{one}); // even if it has a *
    for (const std::string& name : integers) CHECK(listed({"--filter", name}).size() == 1);
    auto rest = integers;
    rest.erase(one);
    CHECK(listed({"--filter", "integers |", "--exclude", one}) == rest);
    const TemporaryFile file("# known\n\n  " + one + "  \r\nswiglu *\n");
    auto from_file = swiglu;
    from_file.insert(one);
    CHECK(listed({"--filter-file", file.path().string()}) == from_file);
    CHECK(listed({"--exclude", "*"}).empty());
    CHECK(all.size() > both.size());

    const TemporaryFile list, empty("# nothing\n");
    CHECK(listed({"--filter", "integers |", "--json", list.path().string()}) == integers);
    CHECK(nlohmann::json::parse(slurp(list.path())).at("rows").size() == integers.size());
    CHECK(contains(conformance({"--filter-file", empty.path().string()}).error, "names no row"));
    CHECK(conformance({"--filter-file", "/no/such/list"}).status == 1);
    const Finished partly = conformance({"--filter", "swiglu | nothing"}, one);
    CHECK(partly.status == 0);
    CHECK(contains(partly.output, "no row is called \"swiglu | nothing\""));
}

TEST_CASE("names of rows that are known to fail, but that no row has") {
    const TemporaryFile file("a | b | c,wrong\na | * | c,crashed\na | b | d,hung\n*nothing*,wrong\n");
    const std::vector<std::string> rows{"a | b | c", "e | f | g"};
    const std::vector<std::string> unused = tq::conformance::Expectations(file.path()).unused(rows);
    CHECK(unused == std::vector<std::string>{"a | b | d", "*nothing*"});
}

TEST_CASE("rows that are known to fail do not fail the run; one that passes, or fails otherwise, does") {
    const std::string row = "integers | - | 20011 numbers";
    const auto expecting = [&](const std::string& lines, const std::string& fault, int status) {
        const TemporaryFile file(lines);
        return report("integers | ", fault, status, {"--expect", file.path().string()}).at("devices")[0];
    };
    const auto crashed = expecting("# a bug of this driver\n" + row + ",crashed\n", "crash:integers | - |", 0);
    CHECK(crashed.at("counts").at("crashed") == 1);
    CHECK(crashed.at("counts").at("as expected") == 1);
    CHECK(crashed.at("counts").at("unexpected") == 0);
    CHECK(crashed.at("passed") == true);
    expecting("integers | - *,crashed\n", "crash:integers | - |", 0);
    expecting(row + ",hung\n", "crash:integers | - |", 1);
    CHECK(expecting(row + ",crashed\n", "", 1).at("counts").at("unexpected") == 1);
    expecting("some other row,wrong\n", "", 0);
    expecting("*,crashed\n", "crash:integers |", 0); // each crash is expected, so that it does not give up
    expecting("*,crashed\n" + row + ",device lost\n", "lost:integers | - |", 1);

    const TemporaryFile every("*,crashed\n");
    CHECK(contains(conformance({"--expect", every.path().string()}, "integers | ", "crash:integers |").output,
                   "no row agrees with the reference; "));
    const TemporaryFile known(row + ",device lost\n"), junit;
    const Finished finished = conformance({"--expect", known.path().string(), "--junit", junit.path().string(), "-v"},
                                          "integers | ", "lost:integers | - |");
    CHECK(finished.status == 0);
    CHECK(contains(finished.output, "device lost, as expected"));
    CHECK(contains(finished.output, "rows that were run agree with the reference; 1 failed as expected."));
    CHECK(contains(slurp(junit.path()), "errors=\"0\" skipped=\"1\""));
    const Finished passed = conformance({"--expect", known.path().string(), "--junit", junit.path().string()}, "integers | ");
    CHECK(passed.status == 1);
    CHECK(contains(passed.output, "FAILED: passed, but device lost was expected"));
    CHECK(contains(slurp(junit.path()), "<failure type=\"passed\""));
    for (const char* wrong : {"integers", "integers,failed", ",wrong", "integers,passed", "integers | - ,wrong, or so"}) {
        const TemporaryFile file(std::string("# one\n") + wrong + "\n"), old("an old report");
        const Finished refused = conformance({"--expect", file.path().string(), "--json", old.path().string()});
        CHECK(slurp(old.path()) == "an old report");
        CAPTURE(refused.error);
        CHECK(refused.status == 1);
        CHECK(contains(refused.error, "line 2 of "));
    }
}

TEST_CASE("one command is what a report needs, wherever it is named") {
    const std::string what = "--json report.json --dump failed";
    for (const char* file : {"README.md", "CONTRIBUTING.md", "tools/tq-run/engine/drivers.cpp"})
        CHECK_MESSAGE(contains(slurp(std::filesystem::path(TQ_SOURCE_DIR) / file), what), file);
    for (const char* file : {"tools/tq-run/engine/proof.cpp", "tools/tq-run/device/doctor.cpp"})
        CHECK_MESSAGE(contains(slurp(std::filesystem::path(TQ_SOURCE_DIR) / file), "report_command("), file);
}

TEST_CASE("what cannot be written is found out before the run") {
    const TemporaryFile file;
    const Finished refused = conformance({"--dump", file.path().string()});
    CHECK(refused.status == 1);
    CHECK(contains(refused.error, "name another folder with --dump"));
    CHECK_FALSE(contains(refused.output, "kernel "));
    CHECK(conformance({"--seed", "-1"}).status == 2);
}

TEST_CASE("rows are repeated until they fail, and shuffled") {
    std::vector<std::string> names;
    for (const std::string& name : listed({"--filter", "integers |"}))
        if (names.size() < 6) names.push_back(name);
    const TemporaryFile file(names[0] + '\n' + names[1] + '\n'), report, list;
    const auto repeated = [&](const char* times) {
        return run(
            {{TQ_RUN, "conformance", "--filter-file", file.path().string(), "--repeat", times, "--json", report.path().string()},
             "",
             {"TQ_CONFORMANCE_FAULT=third:" + names[0]}});
    };
    CHECK(repeated("2").status == 0);
    const Finished failed = repeated("4");
    CAPTURE(failed.output);
    CHECK(failed.status == 1);
    CHECK(contains(slurp(report.path()), "run 3 of 4: "));
    CHECK(contains(slurp(report.path()), "\"verdict\": \"device lost\""));

    const auto order = [&](const char* number) {
        CHECK(listed({"--filter", "integers |", "--shuffle", number, "--json", list.path().string()}) ==
              listed({"--filter", "integers |"}));
        return nlohmann::json::parse(slurp(list.path())).at("rows");
    };
    CHECK(order("1") == order("1"));
    CHECK(order("1") != order("2"));
}

TEST_CASE("in a pipe, long work says how far it is") {
    const Finished quick = conformance({}, "integers |");
    CHECK_FALSE(contains(quick.error, " of "));
    std::string names;
    size_t count = 0;
    for (const std::string& name : listed({"--filter", "integers |"}))
        if (count++ < 6) names += name + '\n';
    const TemporaryFile file(names);
    const Finished slow =
        run({{TQ_RUN, "conformance", "--filter-file", file.path().string()}, "", {"TQ_CONFORMANCE_FAULT=slow:integers"}});
    CAPTURE(slow.error);
    CHECK(slow.status == 0);
    CHECK(contains(slow.error, " of 6, about "));
    CHECK(std::ranges::count(slow.error, '\n') <= 2);
    CHECK_FALSE(contains(slow.error, "\x1b"));
}
