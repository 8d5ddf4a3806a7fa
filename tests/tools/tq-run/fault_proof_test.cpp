// Drivers that are wrong, crash, hang or lose their device: the program finds out by a child before it trusts them, goes on with
// simpler kernels or the CPU, generates the same text, and says so in one line. TQ_FAULT_SWEEP=all: at more calls.
#include "base/child_process.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device.h"
#include "tests/support/fault_environment.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

using namespace tq::test;
namespace fs = std::filesystem;

namespace {

constexpr std::chrono::minutes longest{15};                      // for one run; a busy machine may be slow
constexpr const char* wrong_row = "TQ_CONFORMANCE_FAULT=crash:"; // any row: no child may be asked

struct Ended {
    std::optional<int> status; // none: it hung
    std::string output, error;

    size_t lines() const { return size_t(std::count(error.begin(), error.end(), '\n')); }
};

// A cache directory of its own, where nothing is known yet.
class Place {
  public:
    // prefix: of the command
    explicit Place(std::vector<std::string> prefix = {}) : prefix_(std::move(prefix)) {}
    Ended run(std::vector<std::string> arguments, const Faults& faults, std::vector<std::string> more = {}) const {
        arguments.insert(arguments.begin(), TQ_RUN);
        arguments.insert(arguments.begin(), prefix_.begin(), prefix_.end());
        home_.write("input", "");
        for (std::string& one : fault_environment(faults)) more.push_back(std::move(one));
        more.push_back("TQ_CACHE_DIR=" + cache().string()); // the first of a name counts
        more.emplace_back("TQ_PROVE=300");                  // a busy machine would believe a device after fewer rows
        const fs::path output = home_.path() / "output", error = home_.path() / "error";
        tq::ChildProcess child(arguments, more, {home_.path() / "input", output, error});
        const auto status = child.wait(longest);
        return {status, slurp(output), slurp(error)};
    }
    // Text on the device: the output, and messages without the statistics at the end.
    Ended generate(const Faults& faults, std::vector<std::string> more = {}, const char* device = "0") const {
        Ended ended = run({"generate", "-p", "Once upon a time there was a fox", "-n", "6", "--temp", "0", "--device", device,
                           "--kv-condition", "norms"}, // which are not measured at the first load
                          faults, std::move(more));
        std::istringstream lines(ended.error);
        std::string messages;
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with("tq-run: ")) messages += line + '\n';
        ended.error = messages;
        return ended;
    }
    fs::path cache() const { return home_.path() / "cache"; }
    std::string verdicts() const {
        std::string all;
        if (!fs::exists(cache())) return all;
        for (const auto& file : fs::directory_iterator(cache()))
            if (file.path().string().ends_with(".verdicts.json")) all += slurp(file.path());
        return all;
    }

  private:
    const std::vector<std::string> prefix_;
    TemporaryDirectory home_;
};

const std::string& right_text() {
    static const std::string text = Place().generate({}, {}, "cpu").output;
    REQUIRE(text.size() > 6);
    return text;
}

void check_text(const Ended& ended) {
    CAPTURE(ended.error);
    REQUIRE_MESSAGE(ended.status, "it hangs");
    CHECK(*ended.status == 0);
    CHECK(ended.output == right_text());
}

// That it fails its check and `what` follows, in one line, which is all; later from memory, without a child.
void check_fallback(const Faults& faults, const std::string& what, const std::vector<std::string>& more = {},
                    const std::vector<std::string>& prefix = {}) {
    const Place place(prefix);
    const Ended first = place.generate(faults, more);
    CAPTURE(faults.calls + faults.kernel + ' ' + faults.rewrite);
    check_text(first);
    CHECK(first.lines() == 1);
    CHECK(contains(first.error, " fails the check of its kernels, so " + what));
    CHECK(contains(first.error, "tq-run conformance --device 0 --json report.json --dump failed"));
    auto without_child = more;
    without_child.push_back(wrong_row);
    const Ended later = place.generate(faults, without_child);
    check_text(later);
    CHECK(later.error == first.error);
}

const std::string cpu = "it is not used: ";

} // namespace

TEST_CASE("a device that is right proves itself once, in silence; a build, a model or a driver that is new asks again") {
    const Place place;
    const Ended first = place.generate({});
    check_text(first);
    CHECK(first.error == "");
    CHECK(contains(place.verdicts(), R"("profile": "none")"));
    CHECK(place.generate({}, {wrong_row}).error == "");
    CHECK(contains(place.generate({}, {wrong_row, "LP_NUM_THREADS=1"}).error, cpu)); // other variables of drivers
    const Ended others = place.run({"generate", "-p", "A", "-n", "1", "--device", "0", "-ctk", "q8_0"}, {}, {wrong_row});
    CHECK(contains(others.error, cpu));
    CHECK(place.generate({}, {wrong_row, "TQ_PROVE=0"}).error == "");
    CHECK(contains(place.generate({}, {"TQ_PROVE=soon"}).error, "TQ_PROVE is \"soon\""));
}

TEST_CASE("a kernel that every device runs is wrong, or crashes or hangs its compiler: the same text on the CPU") {
    check_fallback({.kernel = "rms_norm", .rewrite = "FMul:1=FAdd"}, cpu);
    check_fallback({.kernel = "rms_norm", .rewrite = "CRASH"}, cpu);
    check_fallback({.kernel = "rms_norm", .rewrite = "HANG"}, cpu, {"TQ_PROVE=3"});
}

TEST_CASE("a stored tuning whose kernels are wrong, or crash or hang their compiler: the default ones") {
    const tq::Capabilities device = tq::list_devices()[0];
    tq::gpu::Tuning tuning = tq::gpu::choose_tuning(device);
    if (tuning.matmul_tiled || tuning.matmul_coopmat || tuning.matmul_dot) return skip("its own tuning has the tiled kernel");
    tuning.matmul_tiled = true;
    for (const char* rewrite : {"FMul:1=FAdd", "CRASH", "HANG"}) {
        CAPTURE(rewrite);
        const Place place;
        ::setenv("TQ_CACHE_DIR", place.cache().c_str(), 1);
        tq::gpu::store_tuning(device, tuning, {});
        const Faults faults{.kernel = "matmul_tiled_q8_0", .rewrite = rewrite};
        const Ended ended = place.generate(faults, {"TQ_PROVE=20"});
        check_text(ended);
        CHECK(contains(ended.error,
                       " fails the check of its kernels, so it runs with the default tuning: \"matmul_tiled | Q8_0, own"));
        CHECK(place.generate(faults, {wrong_row}).error == ended.error);
    }
}

TEST_CASE("kernels of one kind are wrong: those of the next simpler kind") {
    // A processor that says that it is a graphics card has kernels for subgroups.
    check_fallback({.kernel = "matvec_q8_0_subgroup", .rewrite = "FMul:1=FAdd"},
                   "it runs with the limits of the profile no-subgroup", {"TQ_FAULT_DISCRETE=1"});
}

TEST_CASE("kernels of one kind are wrong on a device with cooperative matrices: without matrices, or without subgroups") {
    const fs::path lab = fs::path(TQ_SOURCE_DIR) / "tests/compiler-lab";
    if (!fs::exists(lab / "../../build/compiler-lab/complete")) return skip("tests/compiler-lab/get was not run");
    const std::vector<std::string> with_matrices{(lab / "with-gpu").string(), "lavapipe"};
    for (const auto& [kernel, profile] :
         {std::pair("matmul_coopmat_q8_0", "no-matrix"), std::pair("matvec_q8_0_subgroup", "no-subgroup")})
        check_fallback({.kernel = kernel, .rewrite = "FMul:1=FAdd"},
                       fmt::format("it runs with the limits of the profile {}", profile), {"TQ_FAULT_DISCRETE=1"}, with_matrices);
}

TEST_CASE("a device that is right but slow is believed by what it has shown") {
    const Place place;
    const Ended first = place.generate({}, {"TQ_PROVE=20", "TQ_CONFORMANCE_FAULT=slow:|"}); // 3 s for each row
    check_text(first);
    CHECK(first.error == "");
    CHECK(contains(place.verdicts(), R"("profile": "none")"));
    CHECK(place.generate({}, {wrong_row}).error == "");
}

TEST_CASE("what is checked are the kernels that the model runs") {
    const Place place;
    const Ended first = place.generate({});
    check_text(first);
    const auto verdicts = nlohmann::json::parse(place.verdicts());
    const std::string subject = verdicts.at("entries").begin()->at("subject"), report = (place.cache() / "report.json").string();
    REQUIRE(place.run({"conformance", "--device", "0", "--subject", subject, "--json", report}, {}).status == 0);
    std::set<std::string> checked;
    const auto rows = nlohmann::json::parse(slurp(report)).at("devices").at(0).at("rows");
    for (const auto& row : rows)
        for (const auto& dispatch : row.at("dispatches")) checked.insert(dispatch.at("spirv").get<std::string>());
    CHECK(rows.size() < 150);
    std::istringstream table(
        place
            .run({"generate", "-p", "Once upon a time there was a fox", "-n", "3", "--temp", "0.5", "--device", "0", "--profile"},
                 {})
            .error);
    std::string line;
    while (std::getline(table, line) && !line.starts_with("kernel ")) {
    }
    size_t kernels = 0;
    while (std::getline(table, line) && !line.starts_with("total ")) {
        const std::string kernel = line.substr(0, line.find(' '));
        if (kernel != "copy") CHECK_MESSAGE(checked.contains(kernel + ".spv"), kernel);
        kernels++;
    }
    CHECK(kernels > 6);
}

TEST_CASE("a device that is lost, or crashes when it is opened or asked to work, at any call: the same text on the CPU") {
    const bool all = std::getenv("TQ_FAULT_SWEEP") != nullptr;
    check_fallback({.calls = "vkCreateDevice:1=CRASH"}, cpu);
    for (const int n : all ? std::vector{1, 2, 3, 5, 9, 17, 33, 65} : std::vector{1, 4, 20})
        for (const char* how : {"DEVICE_LOST", "CRASH"})
            check_fallback({.calls = fmt::format("vkQueueSubmit:{}+={}", n, how)}, cpu);
    check_fallback({.calls = "vkWaitForFences:3+=HANG"}, cpu, {"TQ_PROVE=3"});
}

TEST_CASE("memory that is short is no fault of a driver, and nothing is remembered") {
    const bool all = std::getenv("TQ_FAULT_SWEEP") != nullptr;
    for (const int n : all ? std::vector{1, 2, 3, 4, 6, 8, 12, 16, 24, 32} : std::vector{1, 3, 12}) {
        const Place place;
        const Ended ended = place.generate({.calls = fmt::format("vkAllocateMemory:{}=OUT_OF_DEVICE_MEMORY", n)});
        CAPTURE(n);
        CAPTURE(ended.error);
        REQUIRE(ended.status);
        CHECK_FALSE(contains(ended.error, "fails the check"));
        CHECK_FALSE(contains(place.verdicts(), R"("failure": "\")"));
        if (*ended.status == 0)
            CHECK(ended.output == right_text());
        else
            CHECK(contains(ended.error, "memory"));
    }
}

TEST_CASE("drivers that crash or hang whoever asks for devices: the same text on the CPU") {
    for (const char* calls :
         {"vkCreateInstance:1+=CRASH", "vkEnumeratePhysicalDevices:1+=CRASH", "vkEnumeratePhysicalDevices:1+=HANG"}) {
        const Place place;
        CAPTURE(calls);
        const Ended first = place.generate({.calls = calls}, {"TQ_PROVE=2"});
        check_text(first);
        CHECK(first.lines() == 1);
        CHECK(contains(first.error, "listing the devices of Vulkan drivers crashes or hangs, so none is used: "));
        CHECK(place.generate({.calls = calls}, {"TQ_PROVE=2"}).error == first.error);
        const Ended devices = place.run({"devices"}, {.calls = calls}, {"TQ_PROVE=2"});
        CHECK(devices.status == 0);
        CHECK(contains(devices.output, "cpu  the processor"));
    }
}

TEST_CASE("a driver that was refused is asked again when a layer has changed") {
    const Place place;
    const TemporaryDirectory layers;
    const auto start = [&](const char* calls) {
        return place.generate({.calls = calls}, {"TQ_PROVE=5", "VK_ADD_LAYER_PATH=" + layers.path().string()});
    };
    layers.write("layer.json", "{}");
    const Ended refused = start("vkCreateInstance:1+=CRASH");
    CHECK(contains(refused.error, "none is used: "));
    CHECK(start("").error == refused.error);
    layers.write("layer.json", "{ }");
    CHECK_FALSE(contains(start("").error, "none is used: "));
}

TEST_CASE("a driver that crashes is left out, and another one is used") {
    const char* files = std::getenv("VK_DRIVER_FILES");
    REQUIRE(files != nullptr);
    const std::string both = "=" + crashing_driver() + ":" + files;
    for (const char* how : {"crash", "hang"}) {
        const Place place;
        const std::vector<std::string> more{"VK_DRIVER_FILES" + both, "VK_ICD_FILENAMES" + both, "TQ_PROVE=20",
                                            std::string("TQ_FAULT_DRIVER=") + how};
        const Ended ended = place.generate({}, more);
        check_text(ended);
        CHECK(contains(ended.error, "these are left out: "));
        CHECK(contains(ended.error, "crashing_driver.json"));
        CHECK(contains(place.verdicts(), R"("profile": "none")")); // of the other one
        const Ended doctor = place.run({"doctor", "--json"}, {}, more);
        CAPTURE(doctor.error);
        CHECK(doctor.status == 1);
        const auto json = nlohmann::json::parse(doctor.output);
        CHECK(contains(json.at("drivers").at(0).at("file").get<std::string>(), "crashing_driver.json"));
        CHECK(json.at("drivers").at(0).at("died") != "");
        CHECK(json.at("drivers").at(1).at("died") == "");
        CHECK(json.at("devices").at(0).at("verdict").at("profile") == "none");
        CHECK(json.at("devices").at(0).at("verdict").at("known") == true);
        CHECK(contains(json.at("problems").at(0).get<std::string>(), "crashing_driver.json"));
    }
}

TEST_CASE("doctor says which library a driver lacks, and so does a command that needs a driver") {
    const Place place;
    const TemporaryDirectory directory;
    directory.write("lacking.json", R"({"file_format_version": "1.0.0",
                                        "ICD": {"library_path": "libno_such_driver.so.0", "api_version": "1.3.0"}})");
    const std::string lacking = (directory.path() / "lacking.json").string(),
                      reason = "libno_such_driver.so.0: cannot open shared object file";
    const std::vector<std::string> more{"VK_DRIVER_FILES=" + lacking, "VK_ICD_FILENAMES=" + lacking};
    const Ended doctor = place.run({"doctor"}, {}, more);
    CAPTURE(doctor.output);
    CHECK(contains(doctor.output, "lacking.json: cannot be loaded: " + reason));
    CHECK(contains(doctor.output, "the driver " + lacking + " cannot be loaded (" + reason));
    CHECK(contains(doctor.output, "install what is missing"));
    const Ended generate = place.run({"generate", "-p", "x", "--device", "0"}, {}, more);
    CAPTURE(generate.error);
    CHECK(generate.status != 0);
    CHECK(contains(generate.error, "no Vulkan driver was found that can be loaded (" + reason));
    CHECK(contains(generate.error, "the environment has VK_DRIVER_FILES=" + lacking + ", VK_ICD_FILENAMES="));

    directory.write("lacking.json", "this is not JSON");
    const Ended broken = place.run({"generate", "-p", "x", "--device", "0"}, {}, more);
    CAPTURE(broken.error);
    CHECK(broken.status != 0);
    CHECK(contains(broken.error, "no Vulkan driver was found"));
    CHECK(!contains(broken.error, "close other programs"));
    CHECK(contains(broken.error, "VK_DRIVER_FILES=" + lacking));

    directory.remove("lacking.json");
    for (const std::string& none :
         {directory.path().string(), std::string("/etc/passwd"), std::string("/nonexistent"), std::string()}) {
        const Ended without =
            place.run({"generate", "-p", "x", "--device", "0"}, {}, {"VK_DRIVER_FILES=" + none, "VK_ICD_FILENAMES=" + none});
        CAPTURE(without.error);
        CHECK(contains(without.error,
                       "no Vulkan driver was found on this machine: the environment has VK_DRIVER_FILES=" + none + ", "));
        CHECK_FALSE(contains(without.error, "libX11"));
    }
    const Ended disabled = place.run({"generate", "-p", "x", "--device", "0"}, {}, {"VK_LOADER_DRIVERS_DISABLE=*"});
    CHECK(contains(disabled.error, "VK_LOADER_DRIVERS_DISABLE=*"));
}

TEST_CASE("doctor believes no failure of the past, and says what it finds") {
    const Place place;
    const Ended failing = place.run({"doctor"}, {}, {"TQ_CONFORMANCE_FAULT=lost:rms_norm"});
    CHECK(failing.status == 1);
    CHECK(contains(failing.output, "NOT USED: its kernels fail"));
    CHECK(contains(failing.output, "tq-run conformance --device 0 --json report.json --dump failed"));
    CHECK(contains(place.generate({}).error, cpu));
    const Ended well = place.run({"doctor"}, {});
    CAPTURE(well.output);
    CHECK(well.status == 0);
    CHECK(contains(well.output, "its kernels are right for "));
    CHECK(contains(well.output, "nothing stands in the way"));
    CHECK(place.generate({}).error == "");
}

TEST_CASE("a damaged file of verdicts is written anew, and without a place for it every run asks") {
    const Place place;
    check_text(place.generate({}));
    for (const auto& file : fs::directory_iterator(place.cache()))
        if (file.path().extension() == ".json")
            std::ofstream(file.path()) << R"({"schema": "tq-run-verdicts", "version": 1, "entries": [)";
    const Ended ended = place.generate({});
    check_text(ended);
    CHECK(ended.error == "");
    CHECK(contains(place.verdicts(), R"("profile": "none")"));
    const Ended nowhere = place.generate({}, {"TQ_CACHE_DIR=/proc/tq"});
    check_text(nowhere);
    CHECK(contains(nowhere.error, "will be repeated, since its result cannot be kept"));
}

TEST_CASE("bench measures the devices that were asked for, or nothing") {
    const Faults wrong{.kernel = "rms_norm", .rewrite = "FMul:1=FAdd"};
    const auto bench = [](const char* device, const Faults& faults, std::vector<std::string> more = {}) {
        const Place place;
        std::vector<std::string> words{"bench", "-p", "4", "-n", "2", "-r", "1", "--no-limits", "-o", "json", "--device", device};
        words.insert(words.end(), more.begin(), more.end());
        const Ended ended = place.run(words, faults, {"TQ_PROVE=5"});
        CAPTURE(device);
        CAPTURE(ended.error);
        REQUIRE_MESSAGE(ended.status, "it hangs");
        return ended;
    };
    for (const char* devices : {"0", "cpu,0", "0,cpu"}) {
        const Ended refused = bench(devices, wrong);
        CHECK(*refused.status == 1);
        CHECK(contains(refused.error, "nothing is measured, since --device 0 would run on another device"));
        if (devices[0] == '0') CHECK_FALSE(contains(refused.output, "avg_ts"));
    }
    CHECK(*bench("0", wrong, {"--kernels"}).status == 1);
    CHECK(*bench("0", {.calls = "vkCreateInstance:1+=CRASH"}).status == 1);
    const Place place;
    const Ended limits =
        place.run({"bench", "--limits", "--device", "0"}, {.calls = "vkCreateInstance:1+=CRASH"}, {"TQ_PROVE=5"});
    CHECK(limits.status == 1);
    CHECK(limits.output.empty());
    CHECK(*bench("cpu", wrong).status == 0);
    CHECK(
        *bench("cpu", wrong, {"--spec", "draft", "-md", TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf", "-devd", "0"}).status ==
        1);
}

TEST_CASE("commands that measure or compare do so on the device that was named, or not at all") {
    const Faults wrong{.kernel = "rms_norm", .rewrite = "FMul:1=FAdd"}, crash{.calls = "vkCreateInstance:1+=CRASH"};
    const std::vector<std::vector<std::string>> commands{
        {"validate", "-p", "Once", "-n", "1"},
        {"perplexity", "-c", "64", "--chunks", "1"},
        {"needle", "--lengths", "128", "--samples", "1", "--keys", "1", "--depths", "0"},
        {"ablate", "-c", "64", "--chunks", "1"}};
    for (const bool crashes : {true, false})
        for (std::vector<std::string> command : commands) {
            if (!crashes && command[0] != "perplexity") continue; // a check takes seconds
            command.insert(command.end(), {"--device", "0"});
            const Ended ended = Place().run(command, crashes ? crash : wrong, {"TQ_PROVE=5"});
            CAPTURE(command[0]);
            CAPTURE(ended.error);
            REQUIRE_MESSAGE(ended.status, "it hangs");
            CHECK(*ended.status == 1);
            CHECK(ended.output.empty());
            CHECK(contains(ended.error, "nothing is measured, since --device 0 would run on another device"));
        }
    const Ended against =
        Place().run({"validate", "-p", "Once", "-n", "1", "--device", "cpu", "--against", "0"}, crash, {"TQ_PROVE=5"});
    CHECK(against.status == 1);
    CHECK(against.output.empty());
}

TEST_CASE("commands about devices themselves try one in a child before they open it, and list rows without opening any") {
    const std::vector<std::vector<std::string>> commands{
        {"validate", "-p", "Once", "-n", "1", "--device", "0"},
        {"validate", "-p", "Once", "-n", "1", "--device", "cpu", "--against", "0"},
        {"bench", "--limits", "--device", "0"},
        {"bench", "--tune", "--device", "0"},
        {"codec", "bench", "--device", "0"},
        {"plan", "--memory", "1G", "--device", "0"}};
    for (const auto& [calls, reason] :
         {std::pair("vkQueueSubmit:1+=CRASH", "the process that ran it ended"),
          std::pair("vkQueueSubmit:1+=DEVICE_LOST", "VK_ERROR_DEVICE_LOST"),
          std::pair("vkCreateDevice:1+=HANG", "the device could not be opened: no answer within 3 s")})
        for (const std::vector<std::string>& command : commands) {
            const Place place;
            const Ended ended = place.run(command, {.calls = calls}, {"TQ_PROVE=3"});
            CAPTURE(calls);
            CAPTURE(command[0] + ' ' + command[1]);
            CAPTURE(ended.error);
            REQUIRE_MESSAGE(ended.status, "it hangs");
            CHECK(*ended.status == 1);
            CHECK(contains(ended.error, "does not run a small kernel in a child process ("));
            CHECK(contains(ended.error, reason));
        }
    const Place place;
    const std::vector<std::string> list{"conformance", "--list", "--device", "0"};
    const Ended whole = place.run(list, {}), listed = place.run(list, {.calls = "vkCreateDevice:1+=CRASH"});
    CHECK(whole.status == 0);
    CHECK(whole.lines() == 0);
    CHECK(listed.status == 0);
    CHECK(listed.output == whole.output);
}
