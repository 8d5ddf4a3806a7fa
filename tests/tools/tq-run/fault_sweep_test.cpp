// Every Vulkan call that can fail does, one at a time, while text is generated and a prompt cache saved: tq-run ends, with an
// error message or with all of its output, and the file is the old one or the new one. Each function fails once in each of its
// ways; TQ_FAULT_SWEEP=all in the environment: at each of its calls; TQ_FAULT_SWEEP=vkMapMemory: at each call of that function.
#include "base/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <sstream>

using namespace tq::test;

namespace {

constexpr std::chrono::minutes longest{5}; // for one run; a busy machine may be slow

struct Scenario {
    std::string name;
    std::vector<std::string> arguments;
    std::string input;
    std::vector<std::string> earlier_arguments; // those of an earlier run, which saves the file first
    std::string earlier_input;
};
const Scenario generate{"generate",
                        {"generate", "-p", "Once upon a time there was a small fox.", "-n", "4"},
                        {},
                        {"generate", "-p", "My name is Tom.", "-n", "4"},
                        {}};
const Scenario chat{"chat",
                    {"chat", "-n", "4", "--prompt-cache-all"},
                    "Hello!\nHow are you?\n",
                    {"chat", "-n", "4", "--prompt-cache-all"},
                    "What is your name?\n"};

// The results that a function may return, where they are not only those of exhausted memory.
const std::map<std::string, std::vector<const char*>> results{
    {"vkCreateDevice", {"INITIALIZATION_FAILED", "DEVICE_LOST", "TOO_MANY_OBJECTS"}},
    {"vkAllocateMemory", {"OUT_OF_DEVICE_MEMORY", "OUT_OF_HOST_MEMORY", "TOO_MANY_OBJECTS"}},
    {"vkMapMemory", {"MEMORY_MAP_FAILED", "OUT_OF_HOST_MEMORY"}},
    {"vkQueueSubmit", {"DEVICE_LOST", "OUT_OF_DEVICE_MEMORY"}},
    {"vkWaitForFences", {"DEVICE_LOST", "TIMEOUT", "OUT_OF_DEVICE_MEMORY"}},
    {"vkGetQueryPoolResults", {"DEVICE_LOST", "NOT_READY"}},
    {"vkCreateDescriptorPool", {"OUT_OF_DEVICE_MEMORY", "FRAGMENTED_POOL"}},
    {"vkAllocateDescriptorSets", {"OUT_OF_POOL_MEMORY", "FRAGMENTED_POOL"}},
};
const std::vector<const char*> out_of_memory{"OUT_OF_DEVICE_MEMORY"};

// Whether one line says that the request failed, or that the text is complete and was not saved.
bool says_why(const std::string& error) {
    return ("\n" + error).find("\ntq-run: ") != std::string::npos || error.find("/story.kv: not saved: ") != std::string::npos;
}

struct Ended {
    std::optional<int> status; // none: it hung
    std::string output, error, log;
};

// One scenario with its own files: no file of the user is read or written.
class Sweep {
  public:
    explicit Sweep(const Scenario& scenario) : scenario_(scenario) {
        const Ended earlier = run(scenario.earlier_arguments, scenario.earlier_input, "");
        REQUIRE_MESSAGE(earlier.status == 0, earlier.error);
        old_ = cache();
        files_.write("story.kv", old_);
        good_run_ = run(scenario.arguments, scenario.input, "");
        REQUIRE_MESSAGE(good_run_.status == 0, good_run_.error);
        good_ = cache();
        REQUIRE(good_ != old_);
        REQUIRE(!good_run_.output.empty());
    }

    // The faults to test, from all calls of the run without faults: "vkMapMemory:2=MEMORY_MAP_FAILED".
    std::vector<std::string> faults() const {
        const char* variable = std::getenv("TQ_FAULT_SWEEP");
        const std::string wanted = variable ? variable : "";
        std::vector<std::string> faults;
        std::istringstream log(good_run_.log);
        std::string function;
        size_t ways = 0;
        for (uint64_t calls; log >> function >> calls;) {
            if (!function.starts_with("vk")) continue;
            const auto found = results.find(function);
            for (const char* result : found == results.end() ? out_of_memory : found->second) {
                const uint64_t one = 1 + ways++ * 7 % calls; // early and late calls
                for (uint64_t n = 1; n <= calls; n++)
                    if (wanted.empty() ? n == one : wanted == "all" || wanted == function)
                        faults.push_back(fmt::format("{}:{}={}", function, n, result));
            }
        }
        return faults;
    }

    void check(const std::string& fault) {
        files_.write("story.kv", old_);
        const Ended ended = run(scenario_.arguments, scenario_.input, fault);
        CAPTURE(scenario_.name);
        CAPTURE(fault);
        CAPTURE(ended.output);
        CAPTURE(ended.error);
        CAPTURE(ended.log);
        REQUIRE_MESSAGE(ended.status, "it hangs");
        CHECK((ended.status == 0 || ended.status == 1));
        CHECK(ended.error.find("broken promise") == std::string::npos);
        if (ended.status == 1) CHECK(says_why(ended.error));
        const bool goes_on = scenario_.name == "chat" && ended.error.find("\n[ out of memory while") != std::string::npos;
        if (ended.status == 0 && !goes_on) CHECK(ended.output == good_run_.output);
        const std::string saved = cache();
        if (saved != old_ && saved != good_) { // a chat saves several times, and continues where memory ran out
            REQUIRE(scenario_.name == "chat");
            const Ended read = run({"chat", "-st", "-p", "Hello!", "-n", "1", "--prompt-cache-ro"}, "", "");
            CHECK_MESSAGE(read.status == 0, read.error);
            CHECK(read.error.find(" tokens of the prompt were reused") != std::string::npos);
        }
        CHECK(std::distance(std::filesystem::directory_iterator(files_.path()), {}) == 1);
        struck_ += ended.log.find("fault vk") != std::string::npos;
    }

    size_t struck() const { return struck_; } // runs in which the failing call was made

  private:
    std::string cache() const { return slurp(files_.path() / "story.kv"); }

    Ended run(std::vector<std::string> arguments, const std::string& input, const std::string& fault) {
        arguments.insert(arguments.begin(), TQ_RUN);
        for (const char* more : {"--temp", "0", "-c", "256", "--device", "0", "--prompt-cache"}) arguments.push_back(more);
        arguments.push_back((files_.path() / "story.kv").string());
        home_.write("input", input);
        const std::filesystem::path log = home_.path() / "log", output = home_.path() / "output", error = home_.path() / "error";
        std::filesystem::remove(log);
        auto environment = fault_environment({.calls = fault, .log = log});
        environment.push_back("XDG_CACHE_HOME=" + home_.path().string());
        tq::ChildProcess child(arguments, environment, {home_.path() / "input", output, error});
        const auto status = child.wait(longest);
        return {status, slurp(output), slurp(error), slurp(log)};
    }

    const Scenario& scenario_;
    TemporaryDirectory home_, files_;
    std::string old_, good_;
    Ended good_run_;
    size_t struck_ = 0;
};

void sweep(const Scenario& scenario) {
    Sweep one(scenario);
    const std::vector<std::string> faults = one.faults();
    REQUIRE(!faults.empty());
    for (const std::string& fault : faults) one.check(fault);
    MESSAGE(fmt::format("{}: {} faults, {} of these calls were made", scenario.name, faults.size(), one.struck()));
    CHECK(one.struck() * 10 >= faults.size() * 9); // the number of calls may depend on the time
}

} // namespace

TEST_CASE("generate: whatever fails, it ends, and the prompt cache is whole") { sweep(generate); }
TEST_CASE("chat: whatever fails, it ends, and the prompt cache is whole") { sweep(chat); }
