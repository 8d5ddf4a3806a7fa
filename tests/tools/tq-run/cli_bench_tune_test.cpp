// tq-run bench --tune: the stored file, the commands that use it, and malformed files. No times are checked.
#include "tests/support/child_process.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cmath>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq::test;
using nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;

const std::string& model() {
    static const TemporaryFile file;
    static const std::string path = [] {
        write_random_model(file.path(), {.config = small_config()});
        return file.path().string();
    }();
    return path;
}

// A cache directory of its own, and the program with it.
struct Place {
    TemporaryDirectory directory;
    std::string cache = (directory.path() / "cache").string();

    Finished tq_run(Arguments arguments, const std::string& variable = "TQ_TUNING=") const {
        arguments.insert(arguments.begin(), TQ_RUN);
        return run({std::move(arguments), {}, {"TQ_CACHE_DIR=" + cache, variable}});
    }
    // Takes longer where the machine needs longer for the first variant.
    Finished tune(const Arguments& more = {}, const std::string& variable = "TQ_TUNING=") const {
        Finished finished;
        for (const char* seconds : {"6", "15", "30", "60", "120", "240", "480"}) {
            Arguments all{"bench", "--tune", "--tune-seconds", seconds, "-m", model()};
            all.insert(all.end(), more.begin(), more.end());
            finished = tq_run(std::move(all), variable);
            if (!contains(finished.error, "too short to try any variant")) break;
        }
        return finished;
    }
    std::vector<fs::path> files() const {
        std::vector<fs::path> out;
        std::error_code error;
        for (const fs::directory_entry& entry : fs::directory_iterator(cache, error))
            if (contains(entry.path().filename().string(), ".tuning.json")) out.push_back(entry.path());
        return out;
    }
    json device(const std::string& variable = "TQ_TUNING=") const {
        const Finished finished = tq_run({"devices", "--json"}, variable);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return json::parse(finished.output)[0];
    }
    std::vector<double> logits(const std::string& where = "0") const {
        Arguments arguments{"logits", "-m",   model(), "--ids", "5,7,11,300,2,9,9,1,30,31,32,33,34,35,36,37,38",
                            "--json", "-ctk", "f32",   "-ctv",  "f32"};
        arguments.insert(arguments.end(), {"--device", where});
        const Finished finished = tq_run(arguments);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return json::parse(finished.output)["logits"].get<std::vector<double>>();
    }
};

json read(const fs::path& path) { return json::parse(std::ifstream(path)); }
void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// ||a - b|| / ||b||
double difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < b.size(); i++) error += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return std::sqrt(error / norm);
}

// Other variants of every kernel that any device can run, whatever its default is.
json other_kernels(json kernels) {
    const auto other = [&](const char* name, uint32_t a, uint32_t b) { kernels[name] = kernels[name] == a ? b : a; };
    other("splits", 8, 2);
    other("matvec_rows", 2, 1);
    other("workgroup", 64, 32);
    other("matmul_tokens", 8, 4);
    other("matmul_rows", 1, 2);
    other("attention_rows", 4, 2);
    other("batch_size", 64, 128);
    kernels["weight_interleave"] =
        kernels["workgroup"].get<uint32_t>() / kernels["matvec_lanes"].get<uint32_t>() * kernels["matvec_rows"].get<uint32_t>();
    return kernels;
}

// Writes them to a tuning's file, which holds only the choices and nothing of the device.
void choose(json& stored, const json& kernels) {
    for (auto& [name, value] : stored["kernels"].items()) value = kernels[name];
}

} // namespace

TEST_CASE("a tuning is measured, stored, shown, used and removed") {
    const Place place;
    const json by_default = place.device();
    CHECK(by_default["tuned"] == false);
    const std::vector<double> reference = place.logits("cpu"), before = place.logits();
    CHECK(difference(before, reference) <= 1e-4);

    const Finished tuned = place.tune({"-o", "json"});
    REQUIRE_MESSAGE(tuned.status == 0, tuned.error);
    const json said = json::parse(tuned.output);
    REQUIRE(place.files().size() == 1);
    const fs::path path = place.files()[0];
    CHECK(said["tuning"]["file"] == path.string());
    CHECK(said["tuning"]["cache"] == "tq4u/tq4, window 256");
    CHECK(said["device"]["tuned"] == true);
    CHECK(said["schema"] == "tq-run-bench");
    uint32_t tried = 0;
    for (const json& group : said["tuning"]["groups"]) {
        CHECK((group["default_ms"] > 0 || group["tried"] == 0));
        CHECK((group["best_ms"] > 0 || group["tried"] == 0));
        CHECK(group["refused"] == 0);
        CHECK((group["default"] == group["best"]) == (group["ratio"] == 1));
        CHECK((group["default"] == group["best"] || group["ratio"] >= 1.03));
        tried += group["tried"].get<uint32_t>();
    }
    CHECK(said["tuning"]["groups"].size() == 6);
    CHECK(tried > 0);
    json stored = read(path);
    CHECK(stored["measured"]["groups"] == said["tuning"]["groups"]);
    json shown = place.device();
    CHECK(shown["tuned"] == true);
    for (const auto& [name, value] : stored["kernels"].items()) CHECK(shown["kernels"][name] == value);
    CHECK(contains(place.tq_run({"devices"}).output, "as tq-run bench --tune has found"));

    choose(stored, other_kernels(by_default["kernels"])); // differs from every default
    write(path, stored.dump());
    shown = place.device();
    CHECK(shown["tuned"] == true);
    CHECK(shown["kernels"] != by_default["kernels"]);
    const std::vector<double> after = place.logits();
    CHECK(difference(after, reference) <= 1e-4);
    CHECK(after != before); // sums in another order: it was used
    CHECK(place.device("TQ_TUNING=default")["kernels"] == by_default["kernels"]);
    CHECK(contains(place.tq_run({"devices"}, "TQ_TUNING=quick").error, "TQ_TUNING is \"quick\""));

    const Arguments quick{"bench", "-m", model(), "--device", "0", "-p", "9", "-n", "2", "-r", "1", "--no-limits", "-o", "json"};
    CHECK(json::parse(place.tq_run(quick).output)[0]["device"]["tuned"] == true);
    CHECK(json::parse(place.tq_run(quick, "TQ_TUNING=default").output)[0]["device"]["tuned"] == false);

    const Finished removed = place.tune({"--reset"});
    CHECK(removed.status == 0);
    CHECK(contains(removed.output, "removed " + path.string()));
    CHECK(place.files().empty());
    CHECK(contains(place.tune({"--reset"}).output, "no tuning is stored"));
    CHECK(place.device()["kernels"] == by_default["kernels"]);
}

TEST_CASE("conformance takes the default kernels, or the stored ones when it is told to") {
    const Place place;
    REQUIRE(place.tune().status == 0);
    const fs::path path = place.files().at(0);
    json stored = read(path);
    const json by_default = place.device("TQ_TUNING=default")["kernels"];
    choose(stored, other_kernels(by_default));
    write(path, stored.dump());
    for (const bool tuned : {false, true}) {
        const TemporaryFile report;
        Arguments arguments{"conformance", "--filter", "matvec | Q4_K, own | 257", "--json", report.path().string()};
        if (tuned) arguments.push_back("--tuned");
        const Finished finished = place.tq_run(arguments);
        REQUIRE_MESSAGE(finished.status == 0, finished.output);
        const json all = read(report.path());
        CHECK((all["devices"][0]["device"]["kernels"] == by_default) == !tuned);
    }
}

TEST_CASE("a tuning that cannot be used is told of and left alone") {
    const Place place;
    const Finished tuned = place.tune({"-v"});
    REQUIRE_MESSAGE(tuned.status == 0, tuned.error);
    CHECK(contains(tuned.error, "tuning: preparing "));
    CHECK(contains(tuned.output, "| matvec "));
    CHECK(contains(tuned.output, "Stored in " + place.files().at(0).string()));
    const fs::path path = place.files().at(0);
    json hostile = read(path);
    hostile["kernels"]["workgroup"] = 4294967295u;
    for (const std::string& content : {std::string("{\"schema\": "), std::string("\x1b[2J"), std::string(), hostile.dump()}) {
        write(path, content);
        const Finished devices = place.tq_run({"devices"});
        CHECK(devices.status == 0);
        CHECK(contains(devices.error, "is not used"));
        CHECK(!contains(devices.error, "\x1b"));
        const Finished generated = place.tq_run({"generate", "-m", model(), "--device", "0", "-p", "a", "-n", "2"});
        CHECK(generated.status == 0);
        CHECK(contains(generated.error, "is not used"));
    }
    CHECK(place.device()["tuned"] == false);
    REQUIRE(place.tune().status == 0); // and makes it again
    CHECK(place.device()["tuned"] == true);
}

TEST_CASE("a lesser device has a tuning of its own") {
    const Place place;
    for (const char* profile : {"TQ_DEVICE_PROFILE=spec-minimum", "TQ_DEVICE_PROFILE=mobile"}) {
        const Finished tuned = place.tune({}, profile);
        REQUIRE_MESSAGE(tuned.status == 0, tuned.error);
        CHECK(place.device(profile)["tuned"] == true);
        CHECK(place.device()["tuned"] == false);
        CHECK(contains(place.files().at(0).string(), std::string(profile).substr(18)));
        CHECK(place.tune({"--reset"}, profile).status == 0);
    }
}

TEST_CASE("where nothing can be stored nothing is measured") {
    const Place place;
    write(place.cache, "a file");
    const Finished finished = place.tune();
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "cannot store the tuning in"));
    CHECK(contains(finished.error, "TQ_CACHE_DIR"));
    CHECK(finished.output.empty());
}

TEST_CASE("Ctrl-C stores nothing") {
    const Place place;
    const Command command{
        {TQ_RUN, "bench", "--tune", "--tune-seconds", "600", "-v", "-m", model()}, {}, {"TQ_CACHE_DIR=" + place.cache}};
    const std::string until_it_tries =
        R"("$@" 2>"$out" & p=$!; while ! grep -q 'matvec_rows' "$out" && kill -0 $p; do sleep 0.05; done; )";
    const Finished finished = run_in_shell(command, until_it_tries + "kill -INT $p; wait $p");
    CHECK(finished.status == 130);
    CHECK(contains(finished.output, "stopped: nothing is stored")); // its standard error
    CHECK(place.files().empty());
}

TEST_CASE("wrong usage") {
    const Place place;
    const std::pair<Arguments, std::string> cases[]{
        {{"--tune", "--device", "cpu"}, "the CPU path has no variants"},
        {{"--tune", "--device", "0,cpu"}, "one device at a time"},
        {{"--tune", "-ctk", "tq4,f16"}, "one type of keys"},
        {{"--tune", "-o", "csv"}, "not csv"},
        {{"--tune", "--tune-seconds", "0"}, "number from 1"},
        {{"--tune", "--limits"}, "cannot be used together"},
        {{"--tune", "--kernels"}, "cannot be used together"},
        {{"--reset"}, "--tune"},
        {{"--tune-seconds", "5"}, "--tune"},
    };
    for (const auto& [arguments, text] : cases) {
        Arguments all{"bench"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const Finished finished = place.tq_run(all);
        CAPTURE(text);
        CAPTURE(finished.error);
        CHECK(finished.status == 2);
        CHECK(contains(finished.error, text));
        CHECK(finished.output.empty());
    }
}
