// The fault layer does what other tests rely on: calls fail, a wait hangs, a kernel computes wrongly, and a malformed plan is
// refused.
#include "runtime/device_impl.h"
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <iterator>

using namespace tq::test;

namespace {

Finished conformance(const std::string& kernel, const Faults& faults) {
    return run(
        {{TQ_RUN, "conformance", "--filter", kernel + " ", "--device", "0", "--timeout", "300"}, {}, fault_environment(faults)});
}

} // namespace

TEST_CASE("a kernel that computes wrongly fails its rows, and only there") {
    const TemporaryDirectory directory;
    const std::filesystem::path log = directory.path() / "log";
    const Finished good = conformance("swiglu", {.log = log});
    CHECK_MESSAGE(good.status == 0, good.output);
    CHECK(contains(slurp(log), "\nchanged 0\n"));
    for (const char* rewrite : {"constant:0x3f800000=0x40000000", "FDiv:1=FMul"}) {
        CAPTURE(rewrite);
        const Finished wrong = conformance("swiglu", {.kernel = "swiglu", .rewrite = rewrite, .log = log});
        CHECK_MESSAGE(wrong.status == 1, wrong.error);
        CHECK(!contains(slurp(log), "\nchanged 0\n"));
        CHECK(conformance("swiglu", {.kernel = "rms_norm", .rewrite = "FMul:1=FAdd"}).status == 0);
    }
}

TEST_CASE("a slip in what is to fail ends the program") {
    const auto refused = [](const Finished& finished, const char* variable) {
        CHECK_MESSAGE(finished.status != 0, finished.output);
        CHECK_MESSAGE(contains(finished.output + finished.error, std::string("fault layer: ") + variable), finished.output);
    };
    for (const std::string calls : {"vkNoSuchFunction:1=DEVICE_LOST", "vkMapMemory:0=TIMEOUT", "vkMapMemory:x=TIMEOUT",
                                    "vkMapMemory:1=NO_SUCH_RESULT", "vkMapMemory", "vkMapMemory:x=HANG"}) {
        CAPTURE(calls);
        refused(run({{TQ_RUN, "devices"}, {}, fault_environment({.calls = calls})}), "TQ_FAULT: ");
    }
    for (const std::string rewrite : {"FDiv:77=FMul", "FDiv:1=IAdd", "FDiv:1", "constant:0x12345678=0", "NoSuch:1=FAdd"}) {
        CAPTURE(rewrite);
        refused(conformance("swiglu", {.kernel = "swiglu", .rewrite = rewrite}), "TQ_FAULT_REWRITE: ");
    }
    refused(conformance("swiglu", {.kernel = "no_such_kernel", .rewrite = "FDiv:1=FMul"}), "TQ_FAULT_KERNEL: ");
}

TEST_CASE("calls of this process fail, as many as were asked for, and a wait hangs until its time is over") {
    const Faults faults{.calls = "vkResetFences:1=OUT_OF_DEVICE_MEMORY,vkWaitForFences:2=HANG"};
    for (const std::string& one : fault_environment(faults)) {
        const size_t equals = one.find('=');
        ::setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
    }
    const tq::Device device("0");
    const VkDevice handle = device.impl().handle;
    const VkFenceCreateInfo signalled{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, VK_FENCE_CREATE_SIGNALED_BIT};
    VkFence fence;
    REQUIRE(vkCreateFence(handle, &signalled, nullptr, &fence) == VK_SUCCESS);
    const auto wait = [&] { return vkWaitForFences(handle, 1, &fence, VK_TRUE, 1000); };
    CHECK(vkResetFences(handle, 1, &fence) == VK_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(wait() == VK_SUCCESS); // it is still signalled
    CHECK(wait() == VK_TIMEOUT);
    CHECK(wait() == VK_TIMEOUT); // after a hang every wait fails
    CHECK(vkResetFences(handle, 1, &fence) == VK_SUCCESS);
    vkDestroyFence(handle, fence, nullptr);
}
