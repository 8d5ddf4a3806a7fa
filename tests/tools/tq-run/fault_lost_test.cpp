// A device that is lost while text is generated: it is opened anew, or another one, and the text goes on.
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

// Greedy text of the demo model, with caches that hold what they are given.
const Arguments generate{"generate", "-p",       "Once upon a time there was a small fox.",
                         "-n",       "40",       "--temp",
                         "0",        "-c",       "512",
                         "-ctk",     "f32",      "-ctv",
                         "f32",      "--device", "0"};

using Environment = std::vector<std::string>;

Finished with_faults(const Arguments& command, const std::string& calls, const std::string& input = "",
                     Environment environment = {}) {
    Arguments arguments{TQ_RUN};
    arguments.insert(arguments.end(), command.begin(), command.end());
    for (std::string& one : fault_environment({.calls = calls})) environment.push_back(std::move(one));
    return run({arguments, input, environment});
}

// Two graphics cards of the same name: this driver with two manifests.
class Twins {
  public:
    Twins() {
        const char* files = std::getenv("VK_DRIVER_FILES");
        REQUIRE(files != nullptr);
        const std::filesystem::path manifest = files;
        auto json = nlohmann::json::parse(slurp(manifest));
        const std::filesystem::path library = json["ICD"]["library_path"].get<std::string>();
        if (library.has_parent_path()) json["ICD"]["library_path"] = (manifest.parent_path() / library).string();
        std::string both;
        for (const char* name : {"one.json", "two.json"}) {
            directory_.write(name, json.dump());
            both += (both.empty() ? "" : ":") + (directory_.path() / name).string();
        }
        environment_ = {"VK_DRIVER_FILES=" + both, "VK_ICD_FILENAMES=" + both, "TQ_FAULT_DISCRETE=1"};
    }
    const Environment& environment() const { return environment_; }

  private:
    TemporaryDirectory directory_;
    Environment environment_;
};

constexpr const char* anew = "it was opened again, and what was lost is computed again";
constexpr const char* on_cpu = "the model runs on CPU now";

void check_is_error_without_fit(const std::string& calls) {
    Arguments strict = generate;
    strict.insert(strict.end(), {"--fit", "off"});
    const Finished finished = with_faults(strict, calls);
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "VK_ERROR_DEVICE_LOST"));
}

// The command ends as it does on a device that is not lost, and says `line`.
void check_goes_on(const Arguments& command, const std::vector<const char*>& all_calls, const char* line,
                   const std::string& input = "", const Environment& environment = {}) {
    const Finished whole = with_faults(command, "", input, environment);
    REQUIRE(whole.status == 0);
    CHECK_FALSE(contains(whole.error, "stopped answering"));
    for (const char* calls : all_calls) {
        CAPTURE(calls);
        const Finished finished = with_faults(command, calls, input, environment);
        CAPTURE(finished.error);
        CHECK(finished.status == 0);
        CHECK(finished.output == whole.output);
        CHECK(contains(finished.error, line));
    }
}

} // namespace

TEST_CASE("wherever the device is lost, the text is the same") {
    check_goes_on(generate,
                  {"vkQueueSubmit:2=DEVICE_LOST", "vkQueueSubmit:9=DEVICE_LOST", "vkQueueSubmit:30=DEVICE_LOST",
                   "vkWaitForFences:4=DEVICE_LOST", "vkWaitForFences:25=DEVICE_LOST"},
                  anew);
}

TEST_CASE("a device that is lost twice within a minute, or does not come back, is left for the CPU") {
    check_goes_on(generate,
                  {"vkQueueSubmit:9=DEVICE_LOST,vkQueueSubmit:16=DEVICE_LOST", "vkQueueSubmit:9+=DEVICE_LOST",
                   "vkQueueSubmit:9=DEVICE_LOST,vkCreateDevice:2+=INITIALIZATION_FAILED"},
                  on_cpu);
}

TEST_CASE("a conversation goes on") {
    check_goes_on({"chat", "--temp", "0", "-n", "12", "-c", "512", "-ctk", "f32", "-ctv", "f32", "--device", "0"},
                  {"vkQueueSubmit:12=DEVICE_LOST", "vkQueueSubmit:25=DEVICE_LOST"}, anew,
                  "Hello!\nHow are you?\nWhat is your name?\n");
}

TEST_CASE("what a conversation had in whole pages comes back from the disk") {
    const TemporaryDirectory directory;
    std::string story = "Tell me more.";
    for (int i = 0; i < 20; i++) story += " Once upon a time a small fox lived in a garden near the river. One day it rained.";
    const Arguments chat{
        "chat", "-v",  "--temp",   "0", "-n",          "12", "-c",           "1024", "-ctk",        "f32",
        "-ctv", "f32", "--device", "0", "--cache-ram", "0",  "--cache-disk", "100",  "--cache-dir", directory.path().string()};
    const Finished lost = with_faults(chat, "vkQueueSubmit:40=DEVICE_LOST", story + "\nHow are you?\nWhat is your name?\n");
    CAPTURE(lost.error);
    CHECK(lost.status == 0);
    CHECK(contains(lost.error, anew));
    CHECK(contains(lost.error, ", 512 on the disk\n"));
}

TEST_CASE("with --fit off the loss is an error") { check_is_error_without_fit("vkQueueSubmit:9=DEVICE_LOST"); }

TEST_CASE("a twin takes over where the first card is lost twice within a minute, or does not come back; then the CPU") {
    // Early calls: a graphics card samples as many tokens in one submission as take 50 ms, so that a fast one needs few.
    const Twins twins;
    check_goes_on(generate,
                  {"vkQueueSubmit:2=DEVICE_LOST,vkQueueSubmit:4=DEVICE_LOST",
                   "vkQueueSubmit:2=DEVICE_LOST,vkCreateDevice:2=INITIALIZATION_FAILED"},
                  "(--device 1) now, and what was lost is computed again", "", twins.environment());
    check_goes_on(generate,
                  {"vkQueueSubmit:2+=DEVICE_LOST", "vkQueueSubmit:2=DEVICE_LOST,vkCreateDevice:2+=INITIALIZATION_FAILED"}, on_cpu,
                  "", twins.environment());
    Arguments second = generate;
    second.back() = "1";
    check_goes_on(second, {"vkQueueSubmit:2=DEVICE_LOST,vkQueueSubmit:4=DEVICE_LOST"}, "(--device 0) now", "",
                  twins.environment());
}

TEST_CASE("of two devices that share a model, the one that is left has it alone") {
    const Twins twins;
    Arguments shared = generate;
    shared.back() = "0,1";
    shared.insert(shared.end(), {"-ts", "1,1"});
    check_goes_on(shared, {"vkQueueSubmit:12=DEVICE_LOST"}, anew, "", twins.environment());
    check_goes_on(shared, {"vkQueueSubmit:12=DEVICE_LOST,vkCreateDevice:3=INITIALIZATION_FAILED"}, "(--device 1) now", "",
                  twins.environment());
    check_goes_on(shared, {"vkQueueSubmit:12=DEVICE_LOST,vkCreateDevice:4=INITIALIZATION_FAILED"}, "(--device 0) now", "",
                  twins.environment());
}

TEST_CASE("a device that is lost while the model is loaded is opened again, too; with --fit off that is an error") {
    const Twins twins;
    // A software driver's memory is written without submissions: so the making of buffers finds out that it is lost.
    check_goes_on(generate, {"vkCreateBuffer:20=DEVICE_LOST", "vkBindBufferMemory:40=DEVICE_LOST", "vkQueueSubmit:1=DEVICE_LOST"},
                  anew);
    check_goes_on(generate, {"vkCreateBuffer:20+=DEVICE_LOST"}, on_cpu);
    check_goes_on(generate, {"vkCreateBuffer:20=DEVICE_LOST,vkCreateDevice:2=INITIALIZATION_FAILED"}, "(--device 1) now", "",
                  twins.environment());
    check_is_error_without_fit("vkCreateBuffer:20=DEVICE_LOST");
}

TEST_CASE("a device that gives no answer in time is left alone, and the next one, or the CPU, goes on") {
    // A wait that ends at once without an answer, as if 7777 seconds had passed.
    const Environment seconds{"TQ_GPU_TIMEOUT=7777"};
    check_goes_on(generate, {"vkWaitForFences:2=TIMEOUT", "vkWaitForFences:20=TIMEOUT"}, "gave no answer in time", "", seconds);
    check_goes_on(generate, {"vkWaitForFences:9=TIMEOUT"}, on_cpu, "", seconds);
    const Twins twins;
    Environment both = twins.environment();
    both.push_back(seconds[0]);
    check_goes_on(generate, {"vkWaitForFences:2=TIMEOUT"}, "(--device 1) now", "", both);
    Arguments strict = generate;
    strict.insert(strict.end(), {"--fit", "off"});
    const Finished finished = with_faults(strict, "vkWaitForFences:9=TIMEOUT", "", seconds);
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "gave no answer for 7777 s"));
    CHECK(contains(with_faults(strict, "vkWaitForFences:9=HANG", "", {"TQ_GPU_TIMEOUT=2"}).error, "gave no answer for 2 s"));
    CHECK(contains(with_faults(generate, "", "", {"TQ_GPU_TIMEOUT=soon"}).error, "TQ_GPU_TIMEOUT is \"soon\""));
}

TEST_CASE("a device that is lost while a prompt cache is read is opened again, and the cache is read into it") {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "story.kv").string();
    Arguments with_cache = generate;
    with_cache.insert(with_cache.end(), {"--prompt-cache", file});
    REQUIRE(with_faults(with_cache, "").status == 0);
    with_cache.insert(with_cache.end(), {"--prompt-cache-ro", "-v"});
    const auto reused = [](const Finished& finished) { return contains(finished.error, " tokens of the prompt were reused"); };
    CHECK(reused(with_faults(with_cache, "")));
    const Finished lost = with_faults(with_cache, "vkWaitForFences:1=DEVICE_LOST");
    CAPTURE(lost.error);
    CHECK(reused(lost));
    check_goes_on(with_cache, {"vkWaitForFences:1=DEVICE_LOST", "vkQueueSubmit:1=DEVICE_LOST"}, anew);
}
