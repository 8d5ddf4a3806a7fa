// tq-run needle on the demo model.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;
using nlohmann::json;

namespace {

Finished needle(std::vector<std::string> more) {
    std::vector<std::string> arguments{TQ_RUN, "needle"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({std::move(arguments), {}, {}});
}

std::vector<json> lines(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::vector<json> out;
    for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
    return out;
}

const std::vector<std::string> small{"--lengths", "256,160", "--depths", "0,1", "--keys", "1", "--distractors", "2"};

std::vector<std::string> with(std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// The number of found facts in a log's parts, and the number of facts.
std::pair<int, int> found(const std::vector<json>& log) {
    int exact = 0, all = 0;
    for (size_t i = 1; i < log.size(); i++)
        for (const json& fact : log[i]["found"]) {
            exact += fact["exact"].get<int>();
            all++;
        }
    return {exact, all};
}

} // namespace

TEST_CASE(
    "the demo model finds its facts with an f16 cache, on the CPU and on the device, and is less sure of them with two bits") {
    for (const char* device : {"cpu", "0"}) {
        CAPTURE(device);
        const TemporaryFile log;
        auto arguments =
            with(small, {"--samples", "2", "-ctk", "f16", "-ctv", "f16", "--reference", "none", "--log", log.path().string()});
        if (*device) arguments.insert(arguments.end(), {"--device", device});
        const Finished finished = needle(arguments);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        CHECK(contains(finished.output, "4 texts of 160, 256 tokens, 1 facts of 4 digits at each of 2 depths"));
        const auto rows = lines(log.path());
        REQUIRE(rows.size() == 5);
        CHECK(rows[1]["length"] == 160);
        CHECK(rows[2]["length"] == 256);
        const auto [exact, all] = found(rows);
        CHECK(all == 8);
        CHECK(exact >= 7); // it finds nearly all facts of such a short text
        for (size_t i = 1; i < rows.size(); i++)
            for (const json& fact : rows[i]["found"]) {
                CHECK((fact["said"] == fact["value"]) == (fact["exact"] == 1));
                CHECK(fact["log_p"] < 0);
                CHECK(fact["log_p"] > -3);
            }
    }
    const TemporaryFile log;
    const Finished worse = needle(
        {"--lengths", "900", "--samples", "1", "--device", "cpu", "-ctk", "tq2", "-ctv", "tq2", "--log", log.path().string()});
    REQUIRE_MESSAGE(worse.status == 0, worse.error);
    CHECK(contains(worse.output, "found exactly, tq2/tq2"));
    CHECK(contains(worse.output, "found exactly, f16/f16"));
    const auto rows = lines(log.path());
    const auto [exact, all] = found(rows);
    CHECK(all == 10);
    CHECK(exact >= 7);
    int reference = 0, less_sure = 0;
    for (const json& fact : rows[1]["found"]) {
        reference += fact["reference"]["exact"].get<int>();
        less_sure += fact["log_p"] < fact["reference"]["log_p"];
    }
    CHECK(reference >= 9);
    CHECK(less_sure >= 8);
}

TEST_CASE("more samples go on where fewer ended, and say the same as at once") {
    const TemporaryFile log;
    const auto base = with(small, {"--device", "cpu", "-ctk", "tq3", "-s", "7"});
    const Finished whole = needle(with(base, {"--samples", "2"}));
    REQUIRE_MESSAGE(whole.status == 0, whole.error);
    const auto logged = with(base, {"--log", log.path().string()});
    CHECK(contains(needle(with(logged, {"--samples", "1"})).output, "2 texts of 160, 256 tokens"));
    CHECK(needle(with(logged, {"--samples", "2"})).output == whole.output);
    CHECK(needle(with(logged, {"--samples", "2"})).output == whole.output); // from the log alone
    CHECK(needle(with(base, {"--samples", "2", "-s", "8"})).output != whole.output);
    CHECK(contains(needle(with(logged, {"--samples", "2", "-s", "8"})).error, "is the log of another measurement"));

    std::vector<json> rows = lines(log.path());
    rows[1]["found"].erase(0);
    std::ofstream broken(log.path(), std::ios::binary);
    for (const json& row : rows) broken << row.dump() << "\n";
    broken.close();
    CHECK(contains(needle(with(logged, {"--samples", "2"})).error, "this line is damaged"));
}

TEST_CASE("what cannot be measured is said") {
    CHECK(contains(needle({"--lengths", "4096", "--device", "cpu"}).error, "exceed the context of 2048"));
    CHECK(contains(needle({"--lengths", "512", "-c", "256", "--device", "cpu"}).error, "exceed the context of 256"));
    CHECK(contains(needle({"--lengths", "128", "--keys", "9", "--device", "cpu"}).error, "choose longer texts"));
    CHECK(needle({"--lengths", "12"}).status == 2);
    CHECK(needle({"--depths", "2"}).status == 2);
    CHECK(needle({"--digits", "10"}).status == 2);
    CHECK(needle({"--reference", "tq9"}).status == 2);
    const TemporaryFile empty(" \n"), text("Rain fell on the roof. Nobody was there! The river was high.\n");
    CHECK(contains(needle(with(small, {"--device", "cpu", "-f", empty.path().string()})).error, "no sentences"));
    CHECK(needle(with(small, {"--device", "cpu", "-f", "/no/such/file"})).status == 1);
    CHECK(needle(with(small, {"--device", "cpu", "--samples", "1", "-f", text.path().string()})).status == 0);
}
