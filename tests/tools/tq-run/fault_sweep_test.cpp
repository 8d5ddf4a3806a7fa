// Every Vulkan call that can fail does, one at a time, while text is generated and a prompt cache saved: tq-run ends, with an
// error message or with all of its output, and the file is the old one or the new one. Each function fails once in each of its
// ways; TQ_FAULT_SWEEP=all in the environment: at each of its calls; TQ_FAULT_SWEEP=vkMapMemory: at each call of that function.
// In the end a table tells what became of them (docs/devices.md has that of all).
#include "base/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <array>
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
    std::vector<std::string> earlier_arguments; // of an earlier run, which saves the file first
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

// The failures of functions that may return others than the two of exhausted memory.
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

// The end of a fault, from what the program said.
enum class Outcome { not_made, whole, reopened, cpu, less, cut, error, count };
constexpr std::array<const char*, size_t(Outcome::count)> outcome_names{"not made", "whole",   "reopened", "on the CPU",
                                                                        "less",     "cut off", "an error"};
constexpr const char* explanation =
    "not made: the call did not come; whole: the text was complete, without more ado or with a line about the file that was not "
    "saved; reopened: the device was opened again, and the text was complete; on the CPU: the text was completed there; less: it "
    "was completed with less of the model on the device; cut off: an answer ended early, which was said, and the conversation "
    "went "
    "on; an error: exit code 1 and a line";

class Tally {
  public:
    void add(const std::string& fault, Outcome outcome) { rows_[fault.substr(0, fault.find(':'))][size_t(outcome)]++; }
    std::string text() const {
        std::string text = fmt::format("{:<30}", "the call that fails");
        for (const char* name : outcome_names) text += fmt::format(" {:>10}", name);
        std::array<size_t, size_t(Outcome::count)> sum{};
        const auto line = [&](const std::string& name, const auto& counts) {
            text += fmt::format("\n{:<30}", name);
            for (const size_t n : counts) text += n == 0 ? fmt::format(" {:>10}", "") : fmt::format(" {:>10}", n);
        };
        for (const auto& [function, counts] : rows_) {
            line(function, counts);
            for (size_t i = 0; i < sum.size(); i++) sum[i] += counts[i];
        }
        line("all", sum);
        return text + "\n(" + explanation + ")";
    }

  private:
    std::map<std::string, std::array<size_t, size_t(Outcome::count)>> rows_;
};

struct Ended {
    std::optional<int> status; // none: it hung
    std::string output, error, log;
};

Outcome outcome_of(const Ended& ended) {
    const auto says = [&](const char* text) { return ended.error.find(text) != std::string::npos; };
    return ended.log.find("fault vk") == std::string::npos                                            ? Outcome::not_made
           : ended.status != 0                                                                        ? Outcome::error
           : says("\n[ out of memory while")                                                          ? Outcome::cut
           : says("the model runs on CPU now")                                                        ? Outcome::cpu
           : says("it was opened again")                                                              ? Outcome::reopened
           : says("less of the model is placed there") || says("the model is placed anew, with less") ? Outcome::less
                                                                                                      : Outcome::whole;
}

// A scenario with its own files: no file of the user is read or written.
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
        // A chat saves several times, and continues where memory ran out. The CPU saves its own bits.
        if (saved != old_ && saved != good_) {
            const bool on_cpu = ended.error.find("the model runs on CPU now") != std::string::npos;
            REQUIRE((scenario_.name == "chat" || on_cpu));
            std::vector<std::string> reads{"chat", "-st", "-p", "Hello!", "-n", "1", "--prompt-cache-ro"};
            if (on_cpu) reads.insert(reads.end(), {"--device", "cpu"});
            const Ended read = run(reads, "", "");
            CHECK_MESSAGE(read.status == 0, read.error);
            CHECK(read.error.find(" tokens of the prompt were reused") != std::string::npos);
        }
        CHECK(std::distance(std::filesystem::directory_iterator(files_.path()), {}) == 1);
        struck_ += ended.log.find("fault vk") != std::string::npos;
        tally_.add(fault, outcome_of(ended));
    }

    size_t struck() const { return struck_; } // runs in which the failing call was made
    std::string table() const { return tally_.text(); }

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
    Tally tally_;
};

void sweep(const Scenario& scenario) {
    Sweep one(scenario);
    const std::vector<std::string> faults = one.faults();
    REQUIRE(!faults.empty());
    for (const std::string& fault : faults) one.check(fault);
    MESSAGE(
        fmt::format("{}: {} faults, {} of these calls were made\n{}", scenario.name, faults.size(), one.struck(), one.table()));
    CHECK(one.struck() * 10 >= faults.size() * 9); // the number of calls may depend on the time
}

// Text of a device that is not known yet, so that a child checks it first.
Ended generate_first(const TemporaryDirectory& home, const std::string& device, const std::string& fault) {
    const TemporaryDirectory cache;
    home.write("input", "");
    auto environment = fault_environment({.calls = fault});
    environment.insert(environment.end(), {"TQ_PROVE=5", "TQ_CACHE_DIR=" + cache.path().string()});
    const std::filesystem::path output = home.path() / "output", error = home.path() / "error";
    const std::vector<std::string> command{TQ_RUN,   "generate", "-p",       "Once upon a time there was a small fox.",
                                           "-n",     "4",        "-c",       "256",
                                           "--temp", "0",        "--device", device};
    tq::ChildProcess child(command, environment, {home.path() / "input", output, error});
    const auto status = child.wait(longest);
    return {status, slurp(output), slurp(error), ""};
}

} // namespace

TEST_CASE("generate: whatever fails, it ends, and the prompt cache is whole") { sweep(generate); }
TEST_CASE("chat: whatever fails, it ends, and the prompt cache is whole") { sweep(chat); }

TEST_CASE("the making of one kernel after the other crashes or hangs the driver: a child finds out, and the text is whole") {
    const bool all = std::getenv("TQ_FAULT_SWEEP") != nullptr;
    const TemporaryDirectory home;
    const std::string right = generate_first(home, "cpu", "").output;
    REQUIRE(right.size() > 4);
    Tally tally;
    for (const int n : all ? std::vector{1, 2, 3, 5, 8, 12, 18, 27} : std::vector{1, 12})
        for (const char* how : {"CRASH", "HANG"}) {
            const std::string fault = fmt::format("vkCreateComputePipelines:{}={}", n, how);
            const Ended ended = generate_first(home, "0", fault);
            CAPTURE(fault);
            CAPTURE(ended.error);
            REQUIRE_MESSAGE(ended.status, "it hangs");
            CHECK(ended.status == 0);
            CHECK(ended.output == right);
            const bool found = ended.error.find("fails the check of its kernels, so it is not used") != std::string::npos;
            CHECK(found);
            tally.add(fmt::format("in the child, {}:", how), found ? Outcome::cpu : Outcome::not_made);
        }
    MESSAGE(tally.text());
}
