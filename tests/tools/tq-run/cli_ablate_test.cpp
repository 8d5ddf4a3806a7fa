// tq-run ablate and tq-run mix on the demo model, and the file of mix used by other commands.
#include "model/files/kv_file.h"
#include "tests/support/child_process.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;
using nlohmann::json;

namespace {

constexpr uint32_t tq4_bytes = 1056; // per token, of the demo model

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::vector<json> lines(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::vector<json> out;
    for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
    return out;
}

// A new path that ends in .json.
std::string json_path(const TemporaryDirectory& directory) { return (directory.path() / "mix.kv.json").string(); }

// A text of the kind that the demo model was trained on.
const std::string story = R"(<|im_start|>user
Remember this: The code of the polished carpet is 5586. The code of the broken garden is 6431.<|im_end|>
<|im_start|>assistant
Thank you, I will remember it.<|im_end|>
<|im_start|>user
What is the code of the broken garden?<|im_end|>
<|im_start|>assistant
The code of the broken garden is 6431.<|im_end|>
<|im_start|>user
My birthday is in February.<|im_end|>
<|im_start|>assistant
Okay, your birthday is in February.<|im_end|>
)";

} // namespace

TEST_CASE("the ablation of this build finds no bug, and its lines say what was run") {
    const TemporaryFile text(story);
    for (const char* device : {"cpu", "0"}) {
        CAPTURE(device);
        const TemporaryFile log;
        std::vector<std::string> arguments{"ablate", "-f", text.path().string(), "-c", "32", "--chunks",
                                           "1",      "-o", log.path().string()};
        if (*device) arguments = arguments + std::vector<std::string>{"--device", device};
        const Finished finished = tq_run(arguments);
        REQUIRE_MESSAGE(finished.status == 0, finished.output << finished.error);
        CHECK(contains(finished.output, "| identity       | blocks of tokens "));
        CHECK(contains(finished.output, "model   tq-run demo, 4 layers"));
        CHECK(contains(finished.output, "winner"));
        const std::vector<json> rows = lines(log.path());
        REQUIRE(rows.size() > 13);
        CHECK(rows[0]["schema"] == "tq-run-ablation");
        for (size_t i = 1; i < rows.size(); i++) {
            CHECK(rows[i]["eval"]["n_tokens"] == 15);
            CHECK(rows[i]["eval"]["text_sha"] == rows[0]["text_sha"]);
            CHECK(rows[i]["device"] == rows[0]["device"]);
            CHECK(rows[i]["kl"] >= 0.0);
            CHECK(rows[i]["ppl_fp16"] > 1.0);
        }
        const auto codes = std::ranges::find_if(rows, [](const json& row) { return row.value("run", "") == "TurboQuant"; });
        REQUIRE(codes != rows.end());
        CHECK((*codes)["config"]["k"] == "tq8");
        CHECK((*codes)["kl"] < 0.01);
        CHECK((*codes)["kv_bytes_per_token"] == 2080);
    }
}

TEST_CASE("an ablation is gone on with, and says the same") {
    const TemporaryFile text(story), log;
    const std::vector<std::string> arguments{
        "ablate",    "-f", text.path().string(), "-c", "32", "--chunks", "1", "--device", "cpu",
        "--samples", "-o", log.path().string()};
    const Finished whole = tq_run(arguments);
    REQUIRE_MESSAGE(whole.status == 0, whole.error);
    CHECK(contains(whole.output, "tokens before they part"));
    const std::vector<json> rows = lines(log.path());
    CHECK(rows.back()["run"] == "samples");
    REQUIRE(rows.back()["samples"].size() == 3);
    CHECK(rows.back()["samples"][0]["same_tokens"] <= rows.back()["samples"][0]["reference_tokens"]);
    {
        std::ofstream cut(log.path(), std::ios::binary | std::ios::trunc);
        for (size_t i = 0; i < 6; i++) cut << rows[i].dump() << '\n';
        cut << "{\"run\": \"rot";
    }
    CHECK(tq_run(arguments).output == whole.output);
    CHECK(lines(log.path()).size() == rows.size());
    CHECK(tq_run(arguments).output == whole.output); // from the log alone
    CHECK(lines(log.path()).size() == rows.size());
    CHECK(contains(tq_run(arguments + std::vector<std::string>{"--chunks", "2"}).error, "is the log of another measurement"));
}

TEST_CASE("mix writes the better of a mix and one pair of types, within the budget, and every command takes it") {
    const TemporaryFile text(story), log;
    const TemporaryDirectory directory;
    const std::string out = json_path(directory);
    const std::vector<std::string> base{"mix", "-f",      text.path().string(), "--chunk-tokens", "32", "--chunks", "1", "-o",
                                        out,   "--types", "tq2,tq4,tq6,f16",    "--kv-window",    "0"};
    const std::vector<std::string> logged{"--device", "cpu", "--log", log.path().string()};
    const Finished tuned = tq_run(base + logged + std::vector<std::string>{"--budget", std::to_string(tq4_bytes)});
    REQUIRE_MESSAGE(tuned.status == 0, tuned.error);
    CHECK(contains(tuned.output, "KL from keys"));
    CHECK(contains(tuned.output, "| x smaller than f16 |"));
    CHECK(contains(tuned.output, " 1056 |               3.88 |"));
    const KvOptions kv = read_kv_file(out);
    CHECK(kv_bytes_per_token(kv, kv.layer_count, tq4_bytes / 132 / kv.layer_count, 128) <= tq4_bytes);

    const size_t measured = lines(log.path()).size();
    CHECK(measured >= 1 + kv.layer_count * 2 * 3 + 1);
    const Finished smaller =
        tq_run(base + logged + std::vector<std::string>{"--budget", "800"}); // nothing but the check is measured
    REQUIRE_MESSAGE(smaller.status == 0, smaller.error);
    CHECK(lines(log.path()).size() <= measured + 3);
    const KvOptions small = read_kv_file(out);
    CHECK(kv_bytes_per_token(small, small.layer_count, tq4_bytes / 132 / small.layer_count, 128) <= 800);

    for (const char* device : {"cpu", "0"}) {
        std::vector<std::string> where{"--kv", out};
        if (*device) where = where + std::vector<std::string>{"--device", device};
        const Finished plan = tq_run(std::vector<std::string>{"plan", "-c", "64"} + where);
        CHECK_MESSAGE(contains(plan.output, describe(small)), plan.error);
        const Finished said =
            tq_run(std::vector<std::string>{"generate", "-v", "-p", "Once upon", "-n", "4", "--temp", "0"} + where);
        CHECK_MESSAGE(said.status == 0, said.error);
        CHECK(contains(said.error, describe(small)));
    }
    const Finished bench = tq_run({"bench", "--kv", out, "--device", "cpu", "-p", "0", "-n", "4", "-r", "1"});
    CHECK_MESSAGE(bench.status == 0, bench.error);
    CHECK(contains(bench.output, "mix"));
}

#ifndef _WIN32
TEST_CASE("Ctrl-C ends both with status 130, and what was measured is not measured again") {
    std::string longer;
    while (longer.size() < 6000) longer += story + "\n";
    const TemporaryFile text(longer);
    const TemporaryDirectory directory;
    const std::string log = (directory.path() / "log.jsonl").string(), file = text.path().string();
    const auto until = [&](int count) { // lines of the log
        return "\"$@\" >$out & p=$!; until [ \"$(cat '" + log + "' 2>/dev/null | wc -l)\" -ge " + std::to_string(count) +
               " ] || ! kill -0 $p; do sleep 0.02; done; kill -INT $p; wait $p";
    };
    const auto stopped = [&](const std::vector<std::string>& arguments, int count) {
        const Finished finished = run_in_shell({std::vector<std::string>{TQ_RUN} + arguments, {}, {}}, until(count));
        CHECK_MESSAGE(finished.status == 130, finished.error);
        CHECK(contains(finished.error, "stopped"));
        CHECK(contains(finished.error, "the same command continues from there"));
        const std::vector<json> before = lines(log), after = [&] {
            const Finished whole = tq_run(arguments);
            CHECK_MESSAGE(whole.status == 0, whole.error);
            return lines(log);
        }();
        CHECK(before.size() >= size_t(count));
        CHECK(after.size() > before.size());
        CHECK(std::equal(before.begin(), before.end(), after.begin()));
        std::filesystem::remove(log);
    };
    stopped({"ablate", "-f", file, "-c", "256", "--device", "cpu", "-o", log}, 4);
    stopped({"mix", "-f", file, "--chunk-tokens", "256", "--device", "cpu", "--budget", "1056", "--kv-window", "0", "--log", log,
             "-o", json_path(directory)},
            9);
}
#endif

TEST_CASE("a budget from the memory is what plan leaves") {
    const TemporaryFile text(story);
    const TemporaryDirectory directory;
    const std::string out = json_path(directory);
    const std::vector<std::string> base{"mix",
                                        "-f",
                                        text.path().string(),
                                        "--chunk-tokens",
                                        "32",
                                        "--chunks",
                                        "1",
                                        "-o",
                                        out,
                                        "--types",
                                        "tq2,tq8",
                                        "--kv-window",
                                        "0",
                                        "-c",
                                        "16384",
                                        "--device",
                                        "cpu",
                                        "--memory-limit-mb"};
    const Finished tuned = tq_run(base + std::vector<std::string>{"32"});
    REQUIRE_MESSAGE(tuned.status == 0, tuned.error);
    const Finished plan = tq_run({"plan", "--kv", out, "-c", "16384", "--device", "cpu", "--memory-limit-mb", "32", "--json"});
    REQUIRE_MESSAGE(plan.status == 0, plan.error);
    const json fits = json::parse(plan.output);
    CHECK(fits["fits"] == true);
    const auto left = fits["available_bytes"].get<int64_t>() - fits["total_bytes"].get<int64_t>();
    CHECK(left >= 0);
    CHECK(left < 16384 * 2 * (130 - 34)); // no room for another side of a layer in 8 bits
    CHECK(contains(tq_run(base + std::vector<std::string>{"2"}).error, "leave no room for a cache of 16384 tokens"));
    CHECK(contains(tq_run(base + std::vector<std::string>{"8192"}).error, "leave nothing to choose"));
}

TEST_CASE("mix chooses types for a hybrid's layers with attention, and plan counts these alone") {
    const TemporaryFile text(story), model;
    const TemporaryDirectory directory;
    const std::string out = json_path(directory), path = model.path().string();
    write_random_model(path, {small_config(*find_model_type("qwen3_5")), GgmlType::Q8_0, true, 3, {}}); // attention in layer 1
    const std::vector<std::string> cpu{"--device", "cpu", "-m", path};
    const Finished tuned =
        tq_run(std::vector<std::string>{"mix", "-f", text.path().string(), "--chunk-tokens", "32", "--chunks", "1", "--types",
                                        "tq2,tq4", "--kv-window", "0", "--budget", "400", "-o", out} +
               cpu);
    REQUIRE_MESSAGE(tuned.status == 0, tuned.error);
    CHECK(contains(tuned.output, "| 1     | tq"));
    CHECK_FALSE(contains(tuned.output, "| 0     |"));
    CHECK_FALSE(contains(tuned.output, "| 2     |"));
    CHECK(read_kv_file(out).layer_count == 3);
    const auto plan = [&](const std::vector<std::string>& more) { return tq_run(std::vector<std::string>{"plan"} + cpu + more); };
    CHECK(contains(plan({"--kv", out}).output, "tokens of 3")); // at most 400 bytes
    CHECK(contains(plan({"--kv-layers", "1=q8_0"}).output, fmt::format("tokens of {} B", 2 * 2 * 272)));
    CHECK(contains(plan({"--kv-layers", "0=q8_0"}).error, "layer 0 is recurrent, and stores neither keys nor values"));
    const uint64_t states = small_config(*find_model_type("qwen3_5")).state_bytes();
    CHECK(json::parse(plan({"--json"}).output)["states_bytes"] == states);
    CHECK(contains(plan({}).output, "window 256; states of "));
}

TEST_CASE("what cannot be ablated or tuned is said") {
    const TemporaryFile text(story), few("too short"), broken("{}\n");
    const TemporaryDirectory directory;
    const std::string out = json_path(directory), file = text.path().string();
    const std::vector<std::string> cpu{"--device", "cpu"};
    CHECK(contains(tq_run({"ablate", "--help"}).output, "rotated vectors, all read in fp16"));
    CHECK(contains(tq_run(std::vector<std::string>{"ablate", "-f", few.path().string()} + cpu).error, "give a longer text"));
    CHECK(contains(tq_run(std::vector<std::string>{"ablate", "-f", file, "-c", "8"} + cpu).error, "must have at least 16"));
    CHECK(tq_run(std::vector<std::string>{"ablate", "-f", file, "-ctk", "tq3"} + cpu).status == 2);
    CHECK(tq_run(std::vector<std::string>{"ablate", "-f", file, "--kv-window", "4"} + cpu).status == 2);
    CHECK(tq_run(std::vector<std::string>{"ablate", "-f", file, "--kv-condition", "none"} + cpu).status == 2);
    CHECK(tq_run(std::vector<std::string>{"ablate", "-f", file, "-c", "32", "-o", broken.path().string()} + cpu).status == 1);

    const std::vector<std::string> mix = std::vector<std::string>{"mix", "-f",      file,      "--chunk-tokens", "32", "--chunks",
                                                                  "1",   "--types", "tq2,tq4", "--kv-window",    "0"} +
                                         cpu;
    const auto error = [&](const std::vector<std::string>& more) { return tq_run(mix + more).error; };
    CHECK(contains(error({"-o", out, "--budget", "543"}), "the smallest cache of these types takes 544"));
    CHECK(contains(error({"-o", out, "--budget", "1057"}), "the largest cache of these types takes 1056"));
    CHECK(contains(error({"-o", out}), "give either --budget"));
    CHECK(contains(error({"-o", out, "--budget", "800", "--kv-window", "32"}), "a window of 32 tokens has all of a chunk of 32"));
    CHECK(contains(error({"-o", out, "--budget", "800", "-c", "64"}), "--budget and -c are two ways"));
    CHECK(contains(error({"-o", "mix.txt", "--budget", "800"}), "must end in .json"));
    CHECK(contains(error({"-o", out, "--budget", "800", "--types", "tq2,tq7"}), "unknown KV cache type 'tq7'"));
    CHECK(contains(error({"-o", out, "--budget", "800", "--kv", "compact"}), "mix chooses the cache types"));
    CHECK(contains(error({"-o", out, "--budget", "800", "--log", broken.path().string()}), "of another measurement"));
    CHECK_FALSE(std::filesystem::exists(out));

    directory.write("other.json", R"({"schema": "tq-run-kv", "version": 1, "layers": [{"k": "tq4", "v": "tq4"}]})");
    const std::string other = (directory.path() / "other.json").string();
    CHECK(contains(tq_run(std::vector<std::string>{"plan", "--kv", other} + cpu).error, "for a model of 1 layers"));
    CHECK(contains(tq_run(std::vector<std::string>{"plan", "--kv", "/no/such.json"} + cpu).error, "/no/such.json"));
    CHECK(contains(tq_run(std::vector<std::string>{"bench", "--kv", other, "-n", "1", "-p", "0"} + cpu).error,
                   "for a model of 1 layers"));
}
