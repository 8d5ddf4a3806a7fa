// A device that is lost while text is generated: it is opened anew, or another one, and the text goes on.
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

// Greedy text of the demo model, with caches that hold what they are given.
const Arguments generate{"generate", "-p",       "Once upon a time there was a small fox.",
                         "-n",       "40",       "--temp",
                         "0",        "-c",       "512",
                         "-ctk",     "f32",      "-ctv",
                         "f32",      "--device", "0"};

Finished with_faults(const Arguments& command, const std::string& calls, const std::string& input = "") {
    Arguments arguments{TQ_RUN};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return run({arguments, input, fault_environment({.calls = calls})});
}

constexpr const char* anew = "it was opened again, and what was lost is computed again";
constexpr const char* on_cpu = "the model runs on CPU now";

// The command ends as it does on a device that is not lost, and says `line`.
void check_goes_on(const Arguments& command, const std::vector<const char*>& all_calls, const char* line,
                   const std::string& input = "") {
    const Finished whole = with_faults(command, "", input);
    REQUIRE(whole.status == 0);
    CHECK_FALSE(contains(whole.error, "stopped answering"));
    for (const char* calls : all_calls) {
        CAPTURE(calls);
        const Finished finished = with_faults(command, calls, input);
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

TEST_CASE("with --fit off the loss is an error") {
    Arguments strict = generate;
    strict.insert(strict.end(), {"--fit", "off"});
    const Finished finished = with_faults(strict, "vkQueueSubmit:9=DEVICE_LOST");
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "VK_ERROR_DEVICE_LOST"));
}
