// A model on several devices from the command line: the same text, and what is said of the placement.
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

// Twelve greedy tokens of the demo model, with caches that hold what they are given.
Finished generate(const Arguments& more, const std::vector<std::string>& environment = {}) {
    Arguments arguments{TQ_RUN, "generate", "-p", "The largest city of France is", "-n", "12", "--temp", "0", "-c", "512", "-ctk",
                        "f32",  "-ctv",     "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({arguments, "", environment});
}

std::string text_of(const Finished& finished) {
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    return finished.output;
}

} // namespace

TEST_CASE("layers on a device, on two, and on the CPU give the same text") {
    const std::string whole = text_of(generate({"--device", "0"}));
    CHECK(whole.size() > 8);
    struct Case {
        Arguments flags;
        const char* says;
    };
    for (const Case& c : {Case{{"--device", "0", "-ngl", "2"}, "head"},
                          {{"--device", "0", "--cpu-moe"}, "CPU: feed-forward of layers 0-"},
                          {{"--device", "0", "--n-cpu-moe", "1"}, "CPU: feed-forward of layers 0\n"},
                          {{"--device", "0,0", "-ts", "1,1"}, "layers 0-"},
                          {{"--device", "0,cpu", "-ts", "3,1"}, "layers 1-3; head; CPU: layers 0\n"},
                          {{"--device", "cpu,0,0", "-ts", "2,1,1"}, "CPU: layers 0-1\n"},
                          {{"--device", "0,0,cpu", "--cpu-moe"}, "CPU: feed-forward"}}) {
        std::string line;
        for (const std::string& flag : c.flags) line += flag + ' ';
        CAPTURE(line);
        const Finished finished = generate(c.flags);
        CAPTURE(finished.error);
        CHECK(text_of(finished) == whole);
        CHECK(contains(finished.error, c.says));
    }
    CHECK(text_of(generate({"--device", "0", "-ngl", "0"})) == whole);
}

TEST_CASE("two drivers' devices and the CPU in one process, each with layers, give the text of one device") {
    const std::string swiftshader = TQ_SOURCE_DIR "/build/swiftshader/vk_swiftshader_icd.json";
    const char* const files = std::getenv("VK_DRIVER_FILES");
    if (files == nullptr || !contains(files, "lvp_icd")) return skip("this is not the run on lavapipe");
    if (!std::filesystem::exists(swiftshader)) return skip("no " + swiftshader + ": tests/get-swiftshader fetches it");
    const std::string both = "=" + std::string(files) + ":" + swiftshader;
    const std::vector<std::string> drivers{"VK_DRIVER_FILES" + both, "VK_ICD_FILENAMES" + both};
    const std::string whole = text_of(generate({"--device", "cpu"}));
    struct Case {
        Arguments flags;
        std::vector<const char*> say;
    };
    for (const Case& c : {Case{{"--device", "llvmpipe,swiftshader,cpu", "-ngl", "3", "-ts", "2,1"},
                               {"): layers 1-2;", "): layers 3;", "CPU: layers 0; head"}},
                          {{"--device", "swiftshader,llvmpipe", "-ts", "1,1", "--n-cpu-moe", "3"},
                           {"): attention of layers 0-1;", "): attention of layers 2-3; feed-forward of layers 3; head;",
                            "CPU: feed-forward of layers 0-2"}}}) {
        const Finished finished = generate(c.flags, drivers);
        CAPTURE(finished.error);
        CHECK(text_of(finished) == whole);
        for (const char* part : c.say) {
            CAPTURE(part);
            CHECK(contains(finished.error, part));
        }
        for (const char* name : {"llvmpipe", "SwiftShader"}) CHECK(contains(finished.error, name));
    }
}

TEST_CASE("what does not fit the device is placed on the CPU, or refused with --fit off") {
    const std::string whole = text_of(generate({"--device", "0"}));
    const auto plan =
        nlohmann::json::parse(tq_run({"plan", "--device", "0", "-c", "512", "-ctk", "f32", "-ctv", "f32", "--json"}).output);
    const uint64_t mib = (plan["total_bytes"].get<uint64_t>() - plan["weights_bytes"].get<uint64_t>() / 4) >> 20;
    const Arguments limited{"--device", "0", "--memory", std::to_string(mib) + "M"};
    const Finished fitted = generate(limited);
    CAPTURE(fitted.error);
    CHECK(text_of(fitted) == whole);
    CHECK(contains(fitted.error, "CPU: feed-forward of layers 0"));
    Arguments refused = limited;
    refused.insert(refused.end(), {"--fit", "off"});
    const Finished off = generate(refused);
    CHECK(off.status == 1);
    CHECK(contains(off.error, "does not fit"));
}

TEST_CASE("networks of the CPU run on the device in long prompts, where they are asked to, and the choice is said") {
    const std::string whole = text_of(generate({"--device", "0"}));
    const char* const line = "in blocks of 4 tokens of a prompt or more, the CPU's feed-forward networks run on the devices";
    const Finished streamed = generate({"--device", "0", "--cpu-moe", "--op-offload-min-batch", "4"});
    CHECK(text_of(streamed) == whole);
    CHECK(contains(streamed.error, line));
    const Finished off = generate({"--device", "0", "--cpu-moe", "--op-offload-min-batch", "4", "--no-op-offload"});
    CHECK(text_of(off) == whole);
    CHECK_FALSE(contains(off.error, "in blocks of"));
    CHECK(contains(off.error, "run on the CPU (--no-op-offload)"));
    const Finished exact = generate({"--device", "0", "--cpu-moe", "--op-offload-min-batch", "4", "--deterministic"});
    CHECK(contains(exact.error, "run on the CPU (--deterministic)"));
}

TEST_CASE("where a device's memory runs short in a run, the model is placed anew and the text goes on") {
    if (!has_fault_layer()) return;
    const std::string whole = text_of(generate({"--device", "0"}));
    const char* const line = "out of memory while submitting work";
    for (const Arguments& flags : {Arguments{"--device", "0"}, {"--device", "0", "--cpu-moe"}}) {
        uint32_t moved = 0;
        for (uint32_t call = 2; call < 12; call += 3) {
            CAPTURE(call);
            const auto environment =
                fault_environment({.calls = "vkQueueSubmit:" + std::to_string(call) + "=OUT_OF_DEVICE_MEMORY"});
            const Finished finished = generate(flags, environment);
            CAPTURE(finished.error);
            CHECK(text_of(finished) == whole);
            CHECK(contains(finished.error, line));
            moved += contains(finished.error, "what was computed is kept") ? 1 : 0; // not while it was loaded
            Arguments refused = flags;
            refused.insert(refused.end(), {"--fit", "off"});
            const Finished off = generate(refused, environment);
            CHECK(off.status == 1);
            CHECK(contains(off.error, line));
        }
        CHECK(moved > 1);
    }
}

TEST_CASE("the plan shows each device's part, and predicts the speed of several placements") {
    const Arguments arguments{"plan", "--synthetic", "qwen3-30b-a3b:q4_k_m", "--memory", "8G", "-c", "32k"};
    const Finished finished = tq_run(arguments);
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    for (const char* part : {"attention of layers 0-47", "--cpu-moe", "-ngl 0", "predicted, not measured"}) {
        CAPTURE(part);
        CHECK(contains(finished.output, part));
    }
    Arguments json_arguments = arguments;
    json_arguments.push_back("--json");
    const auto json = nlohmann::json::parse(tq_run(json_arguments).output);
    REQUIRE(json["placement"].size() == 2);
    const auto bytes = [](const nlohmann::json& part) {
        return part["weights_bytes"].get<uint64_t>() + part["kv_cache_bytes"].get<uint64_t>() +
               part["scratch_bytes"].get<uint64_t>();
    };
    CHECK(bytes(json["placement"][0]) <= uint64_t(8) << 30);
    CHECK(bytes(json["placement"][0]) > uint64_t(7) << 30); // it is filled
}

TEST_CASE("shares and devices that do not go together are refused") {
    const Finished finished = generate({"--device", "0", "-ts", "1,2"});
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "-ts has 2 numbers for 1 devices"));
    CHECK(generate({"--device", "0,,0"}).status == 1);
    const Finished both = generate({"--device", "0,cpu", "-ts", "3,1", "-ngl", "2"});
    CHECK(both.status == 1);
    CHECK(contains(both.error, "-ngl 2 and the share of cpu in -ts 3,1 both say what is left to the CPU: give one of them"));
    CHECK(generate({"--device", "0,cpu", "-ts", "3,1,1"}).status == 1);
    const Finished one = tq_run({"validate", "-p", "x", "--device", "0", "-ngl", "1"});
    CHECK(one.status == 2);
    CHECK(contains(one.error, "keeps the model on one device"));
}
