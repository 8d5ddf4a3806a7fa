// tq-run shaders, and device profiles on the command line.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;

TEST_CASE("kernels are listed with the constants of each variant, and compiled") {
    const Finished list = tq_run({"shaders", "--filter", "matvec_q4_0"});
    CHECK(list.status == 0);
    CHECK(contains(list.output, "matvec_q4_0  "));
    CHECK(contains(list.output, " matvec_output=1 interleave="));
    CHECK_FALSE(contains(list.output, "attention"));
    const Finished first = tq_run({"shaders", "--filter", "matvec_q4_0", "--shard", "1/2"}),
                   second = tq_run({"shaders", "--filter", "matvec_q4_0", "--shard", "2/2"});
    CHECK(first.output != second.output);
    CHECK(first.output.size() + second.output.size() == list.output.size());
    CHECK(tq_run({"shaders", "--shard", "3/2"}).status == 2);
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

TEST_CASE("modules are written with their constants") {
    const TemporaryDirectory folder;
    const Finished done = tq_run({"shaders", "--filter", "rms_norm", "--spirv", folder.path().string()});
    CHECK(done.status == 0);
    size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
        CHECK(file.path().filename().string().starts_with("rms_norm.workgroup="));
        CHECK(file.path().extension() == ".spv");
        std::ifstream stream(file.path(), std::ios::binary);
        uint32_t magic = 0;
        stream.read(reinterpret_cast<char*>(&magic), 4);
        CHECK(magic == 0x07230203);
        files++;
    }
    CHECK(files > 0);
    CHECK(contains(tq_run({"shaders", "--filter", "rms_norm", "--spirv", "/dev/null/x"}).error, "cannot make the folder"));
}

TEST_CASE("a device profile is shown, and a wrong one explained, by every command") {
    const Finished devices = tq_run({"devices"}, {}, {"TQ_DEVICE_PROFILE=mobile"});
    CHECK(devices.status == 0);
    CHECK(contains(devices.output, "clamped by the device profile mobile\n"));
    CHECK_FALSE(contains(tq_run({"devices"}, {}, {"TQ_DEVICE_PROFILE=none"}).output, "clamped"));
    const auto list = nlohmann::json::parse(tq_run({"devices", "--json"}, {}, {"TQ_DEVICE_PROFILE=spec-minimum"}).output);
    CHECK(list[0]["profile"] == "spec-minimum");
    CHECK(list[0]["shared_memory_bytes"] == 16384);
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"devices"}, {"shaders"}, {"generate", "-n", "1", "-p", "x"}}) {
        const Finished wrong = tq_run(command, {}, {"TQ_DEVICE_PROFILE=tiny"});
        CHECK(wrong.status == 1);
        CHECK(contains(wrong.error, "unknown device profile \"tiny\": use one of none, spec-minimum"));
    }
}
