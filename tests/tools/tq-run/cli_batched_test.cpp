// tq-run bench -np as its users see it: what it counts, checks, writes and refuses. No times are checked.
#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;
using nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Finished bench(Arguments arguments) {
    arguments.insert(arguments.begin(), {TQ_RUN, "bench"});
    return run({std::move(arguments), {}, {}});
}

json results(Arguments arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const Finished finished = bench(std::move(arguments));
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    return json::parse(finished.output);
}

// llama-batched-bench's fields agree with one another.
void check_result(const json& r) {
    const double prompt = r["pl"].get<double>() * r["pp"].get<double>(),
                 generated = r["pl"].get<double>() * r["tg"].get<double>();
    CHECK(r["n_kv"] == prompt + generated + r["pl"].get<double>() * r["n_depth"].get<double>());
    CHECK(r["n_kv"] <= r["n_kv_max"]);
    CHECK(r["t_pp"] > 0);
    CHECK(r["t_tg"] > 0);
    CHECK(r["t"].get<double>() == doctest::Approx(r["t_pp"].get<double>() + r["t_tg"].get<double>()));
    CHECK(r["speed_pp"].get<double>() == doctest::Approx(prompt / r["t_pp"].get<double>()));
    CHECK(r["speed_tg"].get<double>() == doctest::Approx(generated / r["t_tg"].get<double>()));
    CHECK(r["speed"].get<double>() == doctest::Approx((prompt + generated) / r["t"].get<double>()));
    double mean = 0;
    for (const uint64_t ns : r["samples_tg_ns"]) mean += double(ns) * 1e-9 / double(r["samples_tg_ns"].size());
    CHECK(r["t_tg"].get<double>() == doctest::Approx(mean));
    CHECK(r["checked"] == true);
    CHECK(r["check"]["error"] <= r["check"]["limit"]);
}

// The sequences that were compared with the same sequences alone: the first, the middle and the last.
uint32_t compared(const json& r) { return r.contains("company") ? r["company"]["sequences"].get<uint32_t>() : 0; }

} // namespace

TEST_CASE("every number of sequences at every length and depth, in company as alone") {
    const json all = results({"-np", "1,2,3", "-npp", "20,3", "-ntg", "5", "-d", "0,300", "-r", "2", "--device", "cpu"});
    REQUIRE(all.size() == 12);
    std::vector<std::string> seen;
    for (const json& r : all) {
        CAPTURE(r.dump());
        check_result(r);
        CHECK(r["schema"] == "tq-run-batched-bench");
        CHECK(r["samples_pp_ns"].size() == 2);
        CHECK(r["device"]["backend"] == "CPU");
        const uint32_t sequences = r["pl"];
        CHECK(compared(r) == (sequences == 1 ? 0 : sequences));
        if (sequences > 1) CHECK(r["company"]["n_prompt"] == (r["pp"] == 20 ? 16 : 3));
        if (sequences > 1) CHECK(r["company"]["n_gen"] == 4);
        seen.push_back(fmt::format("{} {} {}", r["n_depth"].get<int>(), r["pp"].get<int>(), sequences));
    }
    CHECK(seen == std::vector<std::string>{"0 20 1", "0 20 2", "0 20 3", "0 3 1", "0 3 2", "0 3 3", "300 20 1", "300 20 2",
                                           "300 20 3", "300 3 1", "300 3 2", "300 3 3"});
}

TEST_CASE("on a device") {
    const json all = results({"-np", "1,3", "-npp", "10", "-ntg", "2", "-d", "260", "-r", "1", "--device", "0"});
    REQUIRE(all.size() == 2);
    for (const json& r : all) {
        check_result(r);
        CHECK(r["device"]["backend"] == "Vulkan");
    }
    CHECK(compared(all[1]) == 3);
    CHECK(all[1]["company"]["n_prompt"] == 10);
    CHECK(all[1]["n_kv_max"] == 3 * 512);
}

TEST_CASE("many sequences, a window, and two caches") {
    const json all = results({"--parallel", "17", "-npp", "2", "-ntg", "2", "-d", "40", "-r", "1", "-ctk", "tq4,f16",
                              "--kv-window", "8", "--device", "cpu"});
    REQUIRE(all.size() == 2);
    for (const json& r : all) {
        check_result(r);
        CHECK(compared(r) == 3);
    }
    CHECK(all[0]["type_k"] == "tq4");
    CHECK(all[1]["type_k"] == "f16");
}

TEST_CASE("a model of another shape") {
    for (const char* device : {"0", "cpu"}) {
        const json all = results({"--synthetic", "qwen3-0.6b:q4_k_m", "--layers", "1", "-npl", "2", "-npp", "2", "-ntg", "1",
                                  "-r", "1", "--device", device, "--no-check"});
        REQUIRE(all.size() == 1);
        CHECK(all[0]["pl"] == 2);
        CHECK(all[0]["checked"] == false);
        CHECK(compared(all[0]) == 0);
        CHECK(all[0]["model"]["layers"] == 1);
    }
}

TEST_CASE("the table has llama-batched-bench's columns and says what was compared") {
    const Finished table = bench({"-np", "1,2,8", "-npp", "8", "-ntg", "2", "-r", "2", "--device", "cpu", "-t", "2", "-v"});
    REQUIRE(table.status == 0);
    CHECK(contains(table.output, "tq-run demo Q8_0 on CPU, 2 threads, cache tq4u/tq4, window 256, blocks of "));
    CHECK(contains(table.output,
                   "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |"));
    CHECK(contains(table.output, "\n|     8 |      2 |    8 |     80 | "));
    CHECK(contains(table.output, "times are means of 2 runs"));
    CHECK(contains(table.output,
                   "8 prompt tokens and 2 sampled ones of the first, the middle and the last of 2, 8 sequences have "
                   "bit for bit the logits that they have alone"));
    CHECK(contains(table.output, "differ from the reference by"));
    CHECK(contains(table.error, "test 3 of 3"));
    CHECK(contains(table.error, "pp8+tg2 x 8: checking the sequences together against the same alone"));
    CHECK(contains(table.error, "pp8+tg2 x 8: 2 of 2"));
    const Finished unchecked =
        bench({"-np", "2", "-npp", "3", "-ntg", "1", "-r", "1", "--device", "cpu", "--no-check", "-oe", "csv"});
    REQUIRE(unchecked.status == 0);
    CHECK(contains(unchecked.output, ": unchecked"));
    CHECK_FALSE(contains(unchecked.output, "bit for bit"));
    CHECK(contains(unchecked.error, "n_kv_max,n_batch,n_ubatch,"));
}

TEST_CASE("sequences that do not fit the memory are refused with numbers, and the others measured") {
    const Finished finished = bench({"-np", "1,1000", "-npp", "4", "-ntg", "1", "-r", "1", "--no-check", "-ctk", "f32",
                                     "--memory", "1G", "--synthetic", "qwen3-0.6b:q8_0", "--layers", "1", "--device", "cpu"});
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "pp4+tg1 x 1000: qwen3-0.6b:q8_0"));
    CHECK(contains(finished.error, "does not fit the memory of CPU: it needs "));
    CHECK(contains(finished.error, "Choose fewer sequences, shorter ones or smaller cache types (-ctk, -ctv)"));
    CHECK(contains(finished.output, "|     4 |      1 |    1 | "));
    const Finished endless = bench({"-np", "1024", "-npp", "16777216", "-ntg", "1"});
    CHECK(endless.status == 1);
    CHECK(contains(endless.error, "its sequences take 17180131328 tokens, and a cache has at most 4294967040"));
}

TEST_CASE("Ctrl-C ends with what has been measured") {
    const Command command{
        {TQ_RUN, "bench", "-np", "1,2", "-npp", "8", "-ntg", "100000", "-r", "1", "-o", "jsonl", "--no-check", "-v"}, {}, {}};
    const Finished finished = run_in_shell(
        command, R"("$@" >"$out" 2>"$out.e" & p=$!; while ! grep -q '1 of 1' "$out.e" && kill -0 $p; do sleep 0.05; done; )"
                 R"(kill -INT $p; wait $p; s=$?; rm "$out.e"; exit $s)");
    CHECK(finished.status == 130);
    CHECK(finished.output.empty());
}

namespace {

// A line as llama-batched-bench writes it.
std::string peer_line(int prompt, int sequences, double prompt_seconds, double generated_seconds) {
    return json{{"n_kv_max", 2048}, {"n_threads", 2},         {"pp", prompt},    {"tg", 4},
                {"pl", sequences},  {"t_pp", prompt_seconds}, {"speed_pp", 1.0}, {"t_tg", generated_seconds},
                {"speed_tg", 1.0}}
               .dump() +
           "\n";
}

} // namespace

TEST_CASE("results beside those of llama-batched-bench: samples of rounds, and ratios") {
    json ours = results({"-np", "1,2", "-npp", "8", "-ntg", "4", "-r", "2", "--device", "cpu", "-t", "2"});
    for (json& r : ours) {
        r["samples_pp_ns"] = {100'000'000, 100'000'000};
        r["samples_tg_ns"] = {400'000'000, 420'000'000};
    }
    const TemporaryDirectory directory;
    const auto write = [&](const char* name, const std::string& text) {
        std::ofstream(directory.path() / name) << text;
        return (directory.path() / name).string();
    };
    const std::string theirs = write("theirs.jsonl", peer_line(8, 1, 0.2, 0.8) + peer_line(8, 2, 0.4, 0.8) +
                                                         peer_line(8, 1, 0.2, 1.0) + peer_line(8, 2, 0.4, 0.8)),
                      mine = write("mine.json", ours.dump());
    const Finished table = bench({"--compare", theirs, mine});
    REQUIRE_MESSAGE(table.status == 0, table.error);
    CHECK(contains(table.output, "(1)  theirs: llama-batched-bench, 2 threads\n"));
    CHECK(contains(table.output, "(2)  mine: tq4u/tq4, window 256, 2 threads\n"));
    CHECK(contains(table.output, "4.50 ± 0.71 |")); // 4 tokens in 0.8 and in 1.0 seconds
    CHECK(contains(table.output, " 9.76 ± 0.34 (2.17x) |"));
    CHECK(contains(table.output, "19.52 ± 0.67 (1.95x) |")); // of two sequences, over 10
    CHECK(contains(table.output, "80.00 ± 0.00 (2.00x) |"));
    CHECK(contains(table.output, "\nmine: tq4u/tq4, window 256, 2 threads: tq-run demo Q8_0, tq-run "));
    const std::pair<std::string, std::string> wrong[]{
        {peer_line(8, 1, 0.2, 0), "has a time of 0"},
        {R"({"pl": 1, "pp": 8, "tg": 4})", "has no number \"n_threads\""},
        {R"({"pl": -1, "pp": 8, "tg": 4, "n_threads": 2})", "\"pl\" that is not a number of at least 0"},
        {R"({"schema": "tq-run-bench", "version": 2, "pl": 1, "cache": "a", "n_threads": 2})", "compare -np with -np"},
        {R"([{"pl": 1, "n_threads": 2, "pp": 8, "tg": 4, "samples_pp_ns": [1, "x"]}])", "not a list of numbers"},
        {R"([{"pl": 1, "n_threads": 2, "pp": 8, "tg": 4, "samples_pp_ns": [1], "samples_tg_ns": [1, 2]}])",
         "1 times of prompts and 2 of generation"},
        {R"([7, {"pl": 1}])", "is not a JSON object"}};
    for (const auto& [text, said] : wrong) {
        const Finished finished = bench({"--compare", write("wrong.json", text), mine});
        CAPTURE(said);
        CAPTURE(finished.error);
        CHECK(finished.status == 1);
        CHECK(contains(finished.error, said));
    }
}

TEST_CASE("tools/batched-compare runs both programs in turn") {
    const TemporaryDirectory directory;
    const std::filesystem::path peer = directory.path() / "peer";
    std::ofstream(peer) << "#!/bin/sh\necho heading\nprintf '%s' '" << peer_line(4, 1, 0.2, 0.8) << peer_line(4, 2, 0.2, 0.8)
                        << "'\n";
    std::filesystem::permissions(peer, std::filesystem::perms::owner_all);
    const std::filesystem::path root = TQ_SOURCE_DIR;
    const Arguments command{"python3",  (root / "tools/batched-compare").string(),
                            "-m",       (root / "tools/demo-model/demo-q8_0.gguf").string(),
                            "--tq-run", TQ_RUN,
                            "-np",      "1,2",
                            "-npp",     "4",
                            "-ntg",     "4",
                            "-r",       "2",
                            "-o",       directory.path().string(),
                            "--peer"};
    Finished good;
    try {
        good = run({command + Arguments{peer.string()}, {}, {}});
    } catch (const tq::Error&) {
        return tq::test::skip("Python is not here, in which tools/batched-compare is written");
    }
    REQUIRE_MESSAGE(good.status == 0, good.error);
    CHECK(contains(good.output, "  llama: llama-batched-bench, 2 threads\n"));
    CHECK(contains(good.output, " tq-run: tq4/tq4, 2 threads\n"));
    CHECK(contains(good.output, "5.00 ± 0.00 |")); // two rounds
    CHECK(contains(good.error, "-npl 1,2 -t 2 --output-format jsonl"));
    const Finished missing = run({command + Arguments{(directory.path() / "none").string()}, {}, {}});
    CHECK(missing.status == 1);
    CHECK(contains(missing.error, "cannot be run"));
    std::ofstream(peer) << "#!/bin/sh\necho no such model >&2\nexit 3\n";
    const Finished failing = run({command + Arguments{peer.string()}, {}, {}});
    CHECK(failing.status == 1);
    CHECK(contains(failing.error, "failed, exit status 3: no such model"));
}

TEST_CASE("wrong usage") {
    const std::pair<Arguments, std::string> cases[]{
        {{"-np", "0"}, "it must be a list of whole numbers from 1 to 1024"},
        {{"-np", "many"}, "it must be a list of whole numbers from 1 to 1024"},
        {{"-np", "-1"}, "it must be a list of whole numbers from 1 to 1024"},
        {{"-np", "1025"}, "it must be a list of whole numbers from 1 to 1024"},
        {{"-np", "99999999999999999999"}, "it must be a list of whole numbers from 1 to 1024"},
        {{"-np", "1,2,4,2"}, "1,2,4,2 has a number twice"},
        {{"-np", "1-4,3"}, "1-4,3 has a number twice"},
        {{"-np"}, "needs a value"},
        {{"-np", "2", "-npp", "0"}, "it must be a list of whole numbers from 1 to 16777216"},
        {{"-np", "2", "-ntg", "16777217"}, "it must be a list of whole numbers from 1 to 16777216"},
        {{"-npp", "128"}, "requires --parallel"},
        {{"-ntg", "128"}, "requires --parallel"},
        {{"-np", "2", "-p", "512"}, "cannot be used together"},
        {{"-np", "2", "--tune"}, "cannot be used together"},
        {{"-np", "2", "-o", "sql"}, "not sql"},
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
