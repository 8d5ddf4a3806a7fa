// tq-run shaders, and device profiles on the command line.
#include "tests/child_process.h"
#include "tests/temporary_file.h"
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

Finished tq_run(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), TQ_RUN);
    return run({arguments, {}, environment});
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("kernels are listed with the constants of each variant, and compiled") {
    const Finished list = tq_run({"shaders", "--filter", "matvec_q4_0"});
    CHECK(list.status == 0);
    CHECK(contains(list.output, "matvec_q4_0  "));
    CHECK(contains(list.output, " matvec_output=1 interleave="));
    CHECK_FALSE(contains(list.output, "attention"));
    const Finished none = tq_run({"shaders", "--filter", "no such kernel"});
    CHECK(none.status == 1);
    CHECK(contains(none.error, "no such kernel"));

    TemporaryFile json("");
    const Finished checked = tq_run({"shaders", "--check", "--filter", "rms_norm", "--json", json.path().string()});
    CHECK(checked.status == 0);
    CHECK(contains(checked.output, ": 0 failed, "));
    const auto all = nlohmann::json::parse(std::ifstream(json.path()));
    REQUIRE(!all["kernels"].empty());
    const auto& kernel = all["kernels"][0];
    CHECK(kernel["kernel"] == "rms_norm");
    CHECK(kernel["shared_memory_bytes"] == 4 * kernel["constants"]["workgroup"].get<int>());
    CHECK(kernel.contains("programs") == all["has_statistics"].get<bool>());
    CHECK(tq_run({"shaders", "--list", "--compile"}).status == 2);
}

TEST_CASE("a device profile is shown, and a wrong one explained, by every command") {
    const Finished devices = tq_run({"devices"}, {"TQ_DEVICE_PROFILE=mobile"});
    CHECK(devices.status == 0);
    CHECK(contains(devices.output, "clamped by the device profile mobile\n"));
    CHECK_FALSE(contains(tq_run({"devices"}, {"TQ_DEVICE_PROFILE=none"}).output, "clamped"));
    const auto list = nlohmann::json::parse(tq_run({"devices", "--json"}, {"TQ_DEVICE_PROFILE=spec-minimum"}).output);
    CHECK(list[0]["profile"] == "spec-minimum");
    CHECK(list[0]["shared_memory_bytes"] == 16384);
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"devices"}, {"shaders"}, {"generate", "-n", "1", "-p", "x"}}) {
        const Finished wrong = tq_run(command, {"TQ_DEVICE_PROFILE=tiny"});
        CHECK(wrong.status == 1);
        CHECK(contains(wrong.error, "there is no device profile \"tiny\"; there are none, spec-minimum"));
    }
}
