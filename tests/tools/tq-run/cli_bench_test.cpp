// tq-run bench as its users see it: what it counts, writes and refuses. No times are checked.
#include "base/system_memory.h"
#include "tests/support/child_process.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

using namespace tq::test;
using nlohmann::json;
using tq::physical_memory_bytes;

namespace {

using Arguments = std::vector<std::string>;

Finished bench(Arguments arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), {TQ_RUN, "bench"});
    return run({std::move(arguments), {}, std::move(environment)});
}

// Small tests of the demo model.
Finished quick(Arguments more) {
    Arguments arguments{"-p", "9", "-n", "3", "-r", "2", "--no-limits"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return bench(arguments);
}

json parse(const Finished& finished) {
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    return json::parse(finished.output);
}

const std::vector<Arguments>& places() {
    static const std::vector<Arguments> all{{"--device", "0"}, {"--device", "cpu"}};
    return all;
}

Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

void check_result(const json& result, uint32_t samples) {
    CHECK(result["samples_ns"].size() == samples);
    const uint32_t tokens = result["n_prompt"].get<uint32_t>() + result["n_gen"].get<uint32_t>();
    double rate = 0;
    for (const uint64_t ns : result["samples_ns"]) {
        CHECK(ns > 0);
        rate += tokens * 1e9 / double(ns) / samples;
    }
    CHECK(result["avg_ts"].get<double>() == doctest::Approx(rate));
    CHECK(result["checked"] == true);
    CHECK(result["check"]["error"] <= result["check"]["limit"]);
    if (result["cache"] == "f32/f32") CHECK(result["check"]["limit"] == 1e-4);
    CHECK(result["check"]["limit"] <= 0.05);
    CHECK(result["check"]["exact"]["error"] <= result["check"]["exact"]["limit"]);
    CHECK(result["check"]["exact"]["limit"] == 1e-4);
    CHECK(result["check"]["layers"] == result["model"]["layers"]); // the demo is small enough for all
}

} // namespace

TEST_CASE("TQ_CPU limits the instruction sets, and results name them") {
    const Arguments limits{"--limits", "--device", "cpu", "-o", "json"};
    const Finished wrong = bench(limits, {"TQ_CPU=sse9"});
    CHECK(wrong.status == 1);
    CHECK(wrong.error.find("TQ_CPU=sse9: not an instruction set; avx2, avx-vnni and avx512 are") != std::string::npos);
    const Finished least = bench(limits, {"TQ_CPU=avx2"});
    if (least.status != 0) {
        CHECK(least.error.find("TQ_CPU=avx2: this processor does not have it") != std::string::npos);
        return;
    }
    CHECK(parse(least)["limits"][0]["device"]["instructions"] == "AVX2");
}

TEST_CASE("every combination is measured once, with all of its samples") {
    for (const Arguments& place : places()) {
        const json all = parse(quick(place + Arguments{"-o", "json", "-d", "0,300", "-ctk", "tq4,f32", "-ctv", "f32"}));
        REQUIRE(all.size() == 8);
        std::set<std::string> seen;
        for (const json& result : all) {
            check_result(result, 2);
            CHECK(result["schema"] == "tq-run-bench");
            CHECK(result["version"] == 2);
            CHECK(result["build"].get<std::string>().starts_with("tq-run "));
            seen.insert(result["test"].get<std::string>() + " " + result["cache"].get<std::string>());
            CHECK(result["device"]["backend"] == (place[1] == "0" ? "Vulkan" : "CPU"));
            CHECK(result["model"]["parameters"] > 4'000'000);
            CHECK(!result.contains("limits"));
        }
        for (const char* cache : {"tq4/f32", "f32/f32"})
            for (const char* test : {"pp9", "tg3", "pp9 @ d300", "tg3 @ d300"})
                CHECK(seen.contains(test + std::string(" ") + cache));
    }
}

TEST_CASE("the bytes that a token reads are those of the weights and of the cache at that depth") {
    for (const Arguments& place : places()) {
        const json all = parse(bench(
            place + Arguments{"-p", "0", "-n", "5", "-d", "0,1000", "-r", "1", "-o", "json", "--no-limits", "--kv", "f16"}));
        REQUIRE(all.size() == 2);
        const json& shallow = all[0];
        const double stored = shallow["kv_bytes_stored_per_token"];
        CHECK(stored == shallow["model"]["layers"].get<double>() * shallow["model"]["kv_heads"].get<double>() *
                            shallow["model"]["head_dim"].get<double>() * 4);
        CHECK(shallow["kv_bytes_read_per_token"] == 3 * stored); // tokens 1 to 5 attend to 3 tokens on average
        CHECK(all[1]["kv_bytes_read_per_token"] == 1003 * stored);
        for (const json& result : all) {
            const double bytes = result["weight_bytes_per_token"].get<double>() + result["kv_bytes_read_per_token"].get<double>();
            CHECK(result["gb_per_s"].get<double>() == doctest::Approx(bytes * result["avg_ts"].get<double>() * 1e-9));
            const double weights = result["weight_bytes_per_token"], file = result["model"]["bytes"];
            CHECK(weights >= file * 0.9); // tied: the embedding is the head, and all of it is read
            CHECK(weights <= file * 1.1);
        }
    }
}

TEST_CASE("the other formats say the same") {
    const Finished table = quick({"-v", "-oe", "csv"}), csv = quick({"-o", "csv"}), lines = quick({"-o", "jsonl"}),
                   sql = quick({"-o", "sql"});
    REQUIRE(table.status == 0);
    CHECK(contains(table.output, "| model "));
    CHECK(contains(table.output, "  pp9 |"));
    CHECK(contains(table.output, "  tg3 |"));
    CHECK(contains(table.output, "differ from the reference by"));
    CHECK(contains(table.output, "build: tq-run "));
    CHECK(contains(table.error, "test 2 of 2"));
    CHECK(contains(table.error, "tg3: 2 of 2"));                         // -v
    CHECK(contains(table.error, "build_commit,build_number,cpu_info,")); // -oe
    CHECK(contains(table.error, "\"tg3\""));
    REQUIRE(sql.status == 0);
    CHECK(sql.output.starts_with("CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n"));
    CHECK(contains(sql.output, "  stddev_ts REAL\n);"));
    CHECK(contains(sql.output, "INSERT INTO llama_bench (build_commit, build_number, cpu_info, "));
    REQUIRE(csv.status == 0);
    CHECK(std::count(csv.output.begin(), csv.output.end(), '\n') == 3);
    CHECK(contains(csv.output, ",avg_ts,"));
    CHECK(contains(csv.output, "\"tg3\""));
    REQUIRE(lines.status == 0);
    CHECK(std::count(lines.output.begin(), lines.output.end(), '\n') == 2);
    const json first = json::parse(lines.output.substr(0, lines.output.find('\n')));
    CHECK(first["schema"] == "tq-run-bench");
    CHECK(first["test"] == "pp9");
}

TEST_CASE("what reads llama-bench's JSON reads ours") {
    const json all = parse(quick({"-o", "json", "--device", "cpu", "-t", "2", "-b", "64"}));
    REQUIRE(all.is_array());
    for (const json& result : all) {
        for (const char* text :
             {"build_commit", "cpu_info", "gpu_info", "backends", "model_filename", "model_type", "cpu_mask", "type_k", "type_v",
              "split_mode", "devices", "tensor_split", "tensor_buft_overrides", "test_time"})
            CHECK_MESSAGE(result.at(text).is_string(), text);
        for (const char* number :
             {"build_number", "model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads", "poll", "n_gpu_layers",
              "main_gpu", "flash_attn", "n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns"})
            CHECK_MESSAGE(result.at(number).is_number_integer(), number);
        for (const char* yes : {"cpu_strict", "no_kv_offload", "use_mmap", "embeddings"})
            CHECK_MESSAGE(result.at(yes).is_boolean(), yes);
        CHECK(result["backends"] == "CPU");
        CHECK(result["n_gpu_layers"] == 0);
        CHECK(result["n_threads"] == 2);
        CHECK(result["n_batch"] == 64);
        CHECK(result["type_k"] == "tq4u");
        CHECK(result["model_filename"].get<std::string>().ends_with("demo-q8_0.gguf"));
        CHECK(result["model_type"] == "tq-run demo Q8_0");
        CHECK(result["model_n_params"] == result["model"]["parameters"]);
        const std::string time = result["test_time"]; // 2026-04-18T11:40:00Z
        CHECK(time.size() == 20);
        CHECK(time[10] == 'T');
        REQUIRE(result["samples_ts"].size() == 2);
        double rate = 0;
        for (const double one : result["samples_ts"]) rate += one / 2;
        CHECK(result["avg_ts"].get<double>() == doctest::Approx(rate));
    }
}

TEST_CASE("llama-bench's fields of the placement say what was asked for, and where layers are") {
    const auto placed = [](const Arguments& flags) {
        const json all =
            parse(bench(flags + Arguments{"-p", "0", "-n", "1", "-r", "1", "-o", "json", "--no-limits", "--no-check"}));
        const json& r = all.at(0);
        return fmt::format("ngl {} ncmoe {} sm {} main {} dev {} ts {} nopo {}", r["n_gpu_layers"].get<int>(),
                           r["n_cpu_moe"].get<int>(), r["split_mode"].get<std::string>(), r["main_gpu"].get<int>(),
                           r["devices"].get<std::string>(), r["tensor_split"].get<std::string>(), r["no_op_offload"].get<int>());
    };
    CHECK(placed({"--device", "cpu"}) == "ngl 0 ncmoe 0 sm none main 0 dev none ts 0.00 nopo 0");
    CHECK(placed({"--device", "0"}) == "ngl -1 ncmoe 0 sm none main 0 dev Vulkan0 ts 0.00 nopo 0");
    CHECK(placed({"--device", "0", "--n-cpu-moe", "3", "--no-op-offload"}) ==
          "ngl 4 ncmoe 3 sm none main 0 dev Vulkan0 ts 0.00 nopo 1");
    CHECK(placed({"--device", "0", "--n-cpu-moe", "20"}) == "ngl 4 ncmoe 4 sm none main 0 dev Vulkan0 ts 0.00 nopo 0");
    CHECK(placed({"--device", "0", "-ngl", "2", "--cpu-moe"}) == "ngl 2 ncmoe 4 sm none main 0 dev Vulkan0 ts 0.00 nopo 0");
    CHECK(placed({"--device", "0/0", "-ts", "3,1", "-ngl", "3"}) ==
          "ngl 3 ncmoe 0 sm layer main 0 dev Vulkan0/Vulkan0 ts 3.00/1.00 nopo 0");
}

TEST_CASE("a device that is named by a number in its name has its own index") {
    const Arguments flags{"-p", "0", "-n", "1", "-r", "1", "-o", "json", "--no-limits", "--no-check", "--device"};
    const std::string name = parse(bench(flags + Arguments{"0"})).at(0).at("device").at("name");
    std::smatch number; // "llvmpipe (LLVM 15.0.6, 256 bits)"
    if (!std::regex_search(name, number, std::regex("[0-9]{3}"))) return;
    CHECK(parse(bench(flags + Arguments{number.str()})).at(0).at("device").at("index") == 0);
}

TEST_CASE("ranges, flags given twice, and prompts with what follows them") {
    const json all = parse(quick({"-o", "json", "--device", "cpu", "-p", "2-4", "-p", "6-10+4,8-16*2", "-n", "0", "-pg", "5,2",
                                  "-pg", "3,1", "--no-check"}));
    std::vector<std::string> tests;
    for (const json& result : all) tests.push_back(result["test"]);
    CHECK(tests ==
          std::vector<std::string>{"pp9", "pp2", "pp3", "pp4", "pp6", "pp10", "pp8", "pp16", "tg3", "pp5+tg2", "pp3+tg1"});
    CHECK(all.back()["n_prompt"] == 3);
    CHECK(all.back()["n_gen"] == 1);
    CHECK(all.back()["gb_per_s"].is_null());
}

TEST_CASE("a baseline is one: -ctk alone is for keys and values") {
    const auto caches = [](const Arguments& flags) {
        std::vector<std::string> out;
        for (const json& result : parse(bench(flags + Arguments{"-p", "0", "-n", "2", "-r", "1", "-o", "json", "--no-limits",
                                                                "--device", "cpu", "--no-check"})))
            out.push_back(result["cache"]);
        return out;
    };
    CHECK(caches({"-ctk", "tq4,f16"}) == std::vector<std::string>{"tq4/tq4", "f16/f16"});
    CHECK(caches({"-ctv", "f16"}) == std::vector<std::string>{"f16/f16"});
    CHECK(caches({"-ctk", "f16", "-ctk", "q8_0", "-ctv", "tq4"}) == std::vector<std::string>{"f16/tq4", "q8_0/tq4"});
    CHECK(caches({"-ctk", "tq4,f16", "--kv-layers", "0=q8_0"}) ==
          std::vector<std::string>{"tq4/tq4, 0 q8_0/q8_0", "f16/f16, 0 q8_0/q8_0"});
}

TEST_CASE("several files are several rows that can be told apart") {
    const std::filesystem::path demo = std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf";
    const TemporaryDirectory directory;
    for (const char* name : {"first.gguf", "second.gguf"}) std::filesystem::copy_file(demo, directory.path() / name);
    const std::string first = (directory.path() / "first.gguf").string(), second = (directory.path() / "second.gguf").string();
    const Arguments quickest{"--device", "cpu", "-p", "0", "--no-check"};
    for (const Arguments& models : {Arguments{"-m", first, "-m", second}, Arguments{"-m", first + "," + second}}) {
        const Finished table = quick(models + quickest);
        CHECK(contains(table.output, "| first "));
        CHECK(contains(table.output, "| second "));
    }
    const Finished both = quick(Arguments{"-m", first + "," + second, "-o", "json"} + quickest);
    const TemporaryFile file(both.output);
    const Finished compared = bench({"--compare", file.path().string()});
    CHECK(contains(compared.output, "| tq-run demo Q8_0 (first.gguf) "));
    CHECK(contains(compared.output, "| tq-run demo Q8_0 (second.gguf) "));
}

TEST_CASE("a table of one model on one device fits 100 columns") {
    for (const Arguments& place : places()) {
        const Finished table = quick(place + Arguments{"-d", "0,300"});
        CHECK(table.output.find('\n') <= 100);
        CHECK(!contains(table.output, "default"));
        CHECK(!contains(table.output, "n_batch"));
    }
    const Finished two = quick({"--device", "0,cpu", "-ctk", "tq4,f16"});
    CHECK(contains(two.output, "| Vulkan0 "));
    CHECK(contains(two.output, "Vulkan0: "));
    CHECK(contains(two.output, "| CPU "));
    CHECK(contains(two.output, "| f16/f16 "));
}

TEST_CASE("what was not checked says so") {
    const json all = parse(quick({"-o", "json", "--no-check"}));
    for (const json& result : all) CHECK(result["checked"] == false);
    CHECK(contains(quick({"--no-check"}).output, "unchecked"));
}

TEST_CASE("two models and two devices, in one table") {
    const Finished finished = bench({"--synthetic", "qwen3-0.6b:q8_0,qwen3-0.6b:q4_0", "--layers", "1", "--device", "cpu,cpu",
                                     "-p", "2", "-n", "1", "-r", "1", "-o", "json", "--no-limits"});
    const json all = parse(finished);
    CHECK(all.size() == 8);
    CHECK(all[0]["model"]["weights"] == "Q8_0");
    CHECK(all[7]["model"]["weights"] == "Q4_0");
    CHECK(all[0]["model"]["layers"] == 1);
    CHECK(all[0]["model_type"] == "qwen3-0.6b:q8_0, 1 layers"); // neither the type twice, nor the same as the whole model
}

TEST_CASE("kernels of the device have calls, bytes and a time each") {
    const json all = parse(quick({"--device", "0", "-o", "json"}));
    for (const json& result : all) {
        REQUIRE(result.contains("kernels"));
        std::set<std::string> names;
        for (const json& row : result["kernels"]) {
            const std::string name = row["kernel"]; // a processor has its texel-buffer variant, or a kernel of its own
            names.insert(name.substr(0, std::min(name.find("_texel"), name.find("_per_lane"))));
            CHECK(row["calls"] > 0);
            CHECK(row["bytes"] > 0);
        }
        CHECK(names.contains("attention"));
        CHECK(names.contains("kv_append"));
        CHECK(names.contains(result["n_gen"] == 0 ? "matmul_q8_0" : "matvec_q8_0"));
    }
    CHECK(contains(quick({"--device", "0", "--profile"}).output, "| attention"));
}

TEST_CASE("limits are measured for every device, with what it lacks left out") {
    const json all = parse(bench({"--limits", "--device", "0,cpu", "-o", "json"}));
    REQUIRE(all["limits"].size() == 2);
    for (const json& limits : all["limits"]) {
        CHECK(limits["read_gb_per_s"] > 0);
        CHECK(limits["fp32_gflops"] > 0);
        CHECK((limits["cooperative_matrix_gflops"].is_null() || limits["cooperative_matrix_gflops"].get<double>() > 0));
    }
    CHECK(all["limits"][0]["copy_gb_per_s"] > 0);
    CHECK(all["limits"][1]["int8_dot_gops"].is_null());
    const Finished table = bench({"--limits", "--device", "cpu"});
    CHECK(contains(table.output, "reading of memory"));
    CHECK(contains(table.output, "not measured"));
}

TEST_CASE("with limits every result has its share of them") {
    const json all = parse(bench({"-p", "0", "-n", "2", "-r", "1", "-o", "json", "--device", "cpu"}));
    const json& result = all[0];
    CHECK(result["bandwidth_share"].get<double>() ==
          doctest::Approx(result["gb_per_s"].get<double>() / result["limits"]["read_gb_per_s"].get<double>()));
}

TEST_CASE("the cache's kernels alone, at each depth and in each type") {
    for (const Arguments& place : places()) {
        const json all = parse(bench(place + Arguments{"--kernels", "-d", "0,600", "-ctk", "tq4,f32", "-ctv", "tq3t,f32", "-r",
                                                       "2", "-o", "json", "--no-limits"}));
        CHECK(all["kernels"].size() == 4 * 4); // kv_append of 1 and of 256 tokens, attention at two depths
        for (const json& row : all["kernels"]) {
            CHECK(row["samples_ns"].size() == 2);
            CHECK(row["avg_ns"] > 0);
            CHECK(row["checked"] == true);
            CHECK(row["check"]["error"] <= row["check"]["limit"]);
            if (row["kernel"] == "attention" && row["cache"] == "f32/f32")
                CHECK(row["bytes"] == (row["n_depth"].get<uint64_t>() + 1) * row["kv_heads"].get<uint64_t>() *
                                          row["head_dim"].get<uint64_t>() * 8);
        }
        const Finished unchecked = bench(place + Arguments{"--kernels", "-r", "1", "--no-limits", "--no-check"});
        CHECK(contains(unchecked.output, "| unchecked "));
    }
    CHECK(contains(bench({"--kernels", "--device", "cpu", "-r", "1", "--no-limits"}).output, "| attention "));
}

TEST_CASE("Ctrl-C ends with what has been measured") {
    Command command{{TQ_RUN, "bench", "-p", "8", "-n", "100000", "-r", "1", "--no-limits", "-o", "csv"}, {}, {}};
    const std::string until_output =
        R"("$@" >"$out" & p=$!; while [ ! -s "$out" ] && kill -0 $p; do sleep 0.05; done; sleep 0.3; )";
    Finished finished = run_in_shell(command, until_output + "kill -INT $p; wait $p");
    CHECK(finished.status == 130);
    CHECK(contains(finished.output, "\"pp8\""));
    CHECK(!contains(finished.output, "\"tg100000\""));
    command.arguments.back() = "json"; // which is written at the end
    command.arguments.push_back("-v");
    const std::string until_second =
        R"("$@" >"$out" 2>"$out.e" & p=$!; while ! grep -q 'tg100000: w' "$out.e" && kill -0 $p; do sleep 0.05; done; )";
    finished = run_in_shell(command, until_second + "kill -INT $p; wait $p; s=$?; rm \"$out.e\"; exit $s");
    CHECK(finished.status == 130);
    const json all = json::parse(finished.output);
    REQUIRE(all.size() == 1);
    CHECK(all[0]["test"] == "pp8");
}

TEST_CASE("one thing that cannot be measured does not keep the rest from it") {
    const Finished finished = quick({"-d", "9999999,0", "--memory", "256M", "-o", "json"});
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "pp9 @ d9999999: tq-run demo with a cache of tq4u/tq4, window 256 does not fit the memory"));
    CHECK(json::parse(finished.output).size() == 2);
    if (physical_memory_bytes() > uint64_t(128) << 30) {
        tq::test::skip("this machine has so much memory that the cache would fit");
        return;
    }
    const Finished kernels = bench({"--kernels", "-d", "16777216", "-ctk", "f32", "-ctv", "f32", "--device", "cpu"});
    CHECK(kernels.status == 1);
    CHECK(contains(kernels.error, "choose a smaller depth with -d"));
}

TEST_CASE("wrong usage") {
    const std::pair<Arguments, std::string> cases[]{
        {{"-p", "many"}, "it must be a list of whole numbers"},
        {{"-p", "1,,2"}, "it must be a list of whole numbers"},
        {{"-d", "99999999999"}, "it must be a list of whole numbers"},
        {{"-p", "0", "-n", "0"}, "nothing to measure"},
        {{"-r", "0"}, "number from 1"},
        {{"-p", "8-4"}, "it must be a list of whole numbers"},
        {{"-p", "8-16*1"}, "it must be a list of whole numbers"},
        {{"-p", "8-16+"}, "it must be a list of whole numbers"},
        {{"-p", "0-4000"}, "at most 1024 numbers"},
        {{"-pg", "8"}, "two numbers of tokens, as in 512,128"},
        {{"-o", "xml"}, "it must be md, csv, json, jsonl or sql, not xml"},
        {{"-oe", "xml"}, "it must be md, csv, json, jsonl or sql, not xml"},
        {{"-hf", "a/b,c/d,e/f", "-hff", "x,y"}, "2 files for 3 repositories"},
        {{"-ctk", "tq4,tq99"}, "tq99"},
        {{"--kv", "balanced,none"}, "none"},
        {{"--kv-layers", "0=f16", "--kernels"}, "cannot be used together"},
        {{"--synthetic", "qwen3-0.6b,x"}, "unknown shape 'x'"},
        {{"--kv", "balanced", "-ctk", "f16"}, "cannot be used together"},
        {{"--synthetic", "qwen3-9b"}, "unknown shape 'qwen3-9b'"},
        {{"--plots", "x"}, "--plots is not supported: tools/plot speed A.json B.json -o DIR"},
        {{"--limits", "-o", "csv"}, "not csv"},
    };
    for (const auto& [arguments, text] : cases) {
        const Finished finished = bench(arguments);
        CAPTURE(text);
        CAPTURE(finished.error);
        CHECK(finished.status == 2);
        CHECK(contains(finished.error, text));
        CHECK(finished.output.empty());
    }
}
