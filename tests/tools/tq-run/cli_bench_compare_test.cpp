// tq-run bench --compare: tables of files that a test writes, and invalid files. And energy, with simulated sensors.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <initializer_list>
#include <nlohmann/json.hpp>

using namespace tq::test;
using nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;

Finished bench(Arguments arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), {TQ_RUN, "bench"});
    return run({std::move(arguments), {}, std::move(environment)});
}

json result(const std::string& cache, uint32_t prompt, uint32_t depth, double speed, json share = nullptr) {
    return {{"schema", "tq-run-bench"},
            {"version", 2},
            {"build", "tq-run 0.1"},
            {"system", "Linux"},
            {"processor_threads", 2},
            {"n_prompt", prompt},
            {"n_gen", prompt > 0 ? 0 : 128},
            {"n_depth", depth},
            {"n_threads", 2},
            {"n_batch", 128},
            {"cache", cache},
            {"model_type", "Qwen3 <8B> Q4_K"},
            {"model_filename", "/a/b.gguf"},
            {"model", {{"name", "Qwen3 <8B>"}, {"weights", "Q4_K"}, {"layers", 36}}},
            {"device",
             {{"backend", "Vulkan"},
              {"name", "Fast & Co"},
              {"index", 0},
              {"driver_name", "radv"},
              {"driver_info", "Mesa 23"},
              {"api_version", "1.3.1"}}},
            {"avg_ts", speed},
            {"bandwidth_share", std::move(share)},
            {"checked", true}};
}

json document(std::initializer_list<json> results) { return json(std::vector<json>(results)); }

json on_device(json document, const std::string& name) {
    for (json& one : document) one["device"]["name"] = name;
    return document;
}

// `all` with four samples each that vary by `deviation`.
json with_samples(json all, double deviation) {
    for (json& one : all) one.update({{"stddev_ts", deviation}, {"samples_ns", {1, 2, 3, 4}}});
    return all;
}

json two_depths() {
    return document({result("f16/f16", 0, 0, 50, 0.5), result("tq4/tq4", 0, 0, 60, 0.6), result("f16/f16", 0, 8192, 20, 0.8),
                     result("tq4/tq4", 0, 8192, 50, 0.7), result("tq4/tq4", 512, 0, 1000)});
}

// A result as llama-bench -o json writes it.
json llama_bench(const std::string& model, uint32_t prompt, uint32_t depth, double speed) {
    return {{"build_commit", "8a4c5d1"},
            {"build_number", 6000},
            {"cpu_info", "Xeon"},
            {"gpu_info", "Fast & Co"},
            {"backends", "Vulkan"},
            {"model_filename", "models/b.gguf"},
            {"model_type", model},
            {"model_size", 4000},
            {"model_n_params", 8000},
            {"n_batch", 2048},
            {"n_ubatch", 512},
            {"n_threads", 8},
            {"type_k", "f16"},
            {"type_v", "f16"},
            {"n_gpu_layers", 99},
            {"n_prompt", prompt},
            {"n_gen", prompt > 0 ? 0 : 128},
            {"n_depth", depth},
            {"avg_ts", speed},
            {"stddev_ts", 0.5},
            {"samples_ns", {1, 2, 3}},
            {"samples_ts", {1, 2, 3}}};
}

json llama_without(const char* key) {
    json one = llama_bench("qwen3 8B", 512, 0, 100);
    one.erase(key);
    return one;
}

size_t count(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

} // namespace

TEST_CASE("llama-bench's JSON is set beside ours: the same model, by its file or its sizes, shares rows") {
    const TemporaryFile ours(two_depths().dump(1)),
        theirs(document({llama_bench("qwen3 8B Q4_K - Medium", 0, 0, 40), llama_bench("qwen3 8B Q4_K - Medium", 0, 8192, 16)})
                   .dump(1));
    const Finished finished = bench({"--compare", ours.path().string(), theirs.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, "Fast & Co, llama.cpp"));
    CHECK(contains(finished.output, "40.00 ± 0.50 (0.80x)"));
    CHECK(contains(finished.output, "16.00 ± 0.50 (0.80x)"));
    CHECK_FALSE(contains(finished.output, "qwen3 8B"));
    CHECK(contains(finished.output, "llama-bench of llama.cpp, commit 8a4c5d1"));
    CHECK(contains(finished.output, "Fast & Co, llama.cpp, Qwen3 <8B> Q4_K, f16/f16: unchecked"));

    json other = llama_bench("llama 7B Q4_0", 512, 0, 900), processor = llama_bench("llama 7B Q4_0", 512, 0, 9);
    other["model_filename"] = processor["model_filename"] = "/x/other.gguf";
    processor["n_gpu_layers"] = 0;
    const TemporaryFile more(other.dump() + "\n" + processor.dump() + "\n"); // -o jsonl
    const Finished alone = bench({"--compare", more.path().string(), ours.path().string()});
    REQUIRE_MESSAGE(alone.status == 0, alone.error);
    CHECK(contains(alone.output, "llama 7B Q4_0"));
    CHECK(contains(alone.output, "Xeon, 8 threads, llama.cpp"));

    json sized = two_depths();
    for (json& one : sized) one.update({{"model_filename", "renamed.gguf"}, {"model_size", 4000}, {"model_n_params", 8000}});
    const TemporaryFile renamed(sized.dump());
    CHECK(contains(bench({"--compare", renamed.path().string(), theirs.path().string()}).output, "40.00 ± 0.50 (0.80x)"));
}

TEST_CASE("comparisons are written as JSON and CSV, too") {
    const TemporaryFile a(with_samples(two_depths(), 1).dump()),
        b(on_device(document({result("tq4/tq4", 0, 0, 30)}), "Slow, \"2\"").dump());
    const auto compare = [&](const char* format) {
        return bench({"--compare", a.path().string(), b.path().string(), "-o", format});
    };
    const Finished finished = compare("json");
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    const json all = json::parse(finished.output);
    REQUIRE(all.size() == 6);
    CHECK(all[1]["device"] == "Fast & Co");
    CHECK(all[1]["test"] == "tg128");
    CHECK(all[1]["avg_ts"] == 60);
    CHECK(all[1]["over_f16"].get<double>() == doctest::Approx(1.2));
    CHECK(all[1]["over_f16_error"] > 0);
    CHECK(all[0]["over_f16"].is_null());
    CHECK(all[0]["ns_per_depth"] > 0);
    CHECK(all[5]["over_first_device"].get<double>() == doctest::Approx(0.5));
    CHECK(all[0]["over_first_device"].is_null());
    const std::string lines = compare("jsonl").output, csv = compare("csv").output;
    CHECK(json::parse(lines.substr(0, lines.find('\n'))) == all[0]);
    CHECK(count(lines, "\n") == 6);
    CHECK(csv.starts_with("device,model,cache,test,n_prompt,n_gen,n_depth,avg_ts,"));
    CHECK(count(csv, "\n") == 7);
    CHECK(contains(csv, "\"Slow, \"\"2\"\"\",\"Qwen3 <8B> Q4_K\",\"tq4/tq4\",\"tg128\""));
    CHECK(compare("sql").status == 2);
}

TEST_CASE("files are set side by side, each device over the first") {
    const TemporaryFile a(two_depths().dump(1)),
        b(on_device(document({result("tq4/tq4", 0, 0, 30), result("tq4/tq4", 512, 0, 250)}), "Slow").dump());
    const Finished finished = bench({"--compare", a.path().string(), b.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, "Fast & Co"));
    CHECK(contains(finished.output, "30.00 (0.50x)"));
    CHECK(contains(finished.output, "250.00 (0.25x)"));
    CHECK(contains(finished.output, "tg128 @ d8192"));
    CHECK(contains(finished.output, "60.0 %"));
    CHECK(contains(finished.output, "1.20x")); // 60 / 50
    CHECK(contains(finished.output, "2.50x")); // 50 / 20
    CHECK(!contains(finished.output, "Joules"));
    CHECK(contains(finished.output, "Slow: radv Mesa 23, Vulkan 1.3.1, Linux; tq-run 0.1"));
}

TEST_CASE("what differs in layers, file, device or threads shares no row and no column") {
    json layers = document({result("tq4/tq4", 0, 0, 60)}), file = layers, device = layers, threads = layers, cpu = layers;
    layers[0]["model"]["layers"] = 2;
    file[0]["model_filename"] = "/c/d.gguf";
    device.push_back(device[0]);
    device[1]["device"]["index"] = 1;
    threads.push_back(threads[0]);
    threads[1]["n_threads"] = 4;
    cpu[0]["device"]["backend"] = "CPU";
    const TemporaryFile base(document({result("tq4/tq4", 0, 0, 60)}).dump()), other_layers(layers.dump()),
        other_file(file.dump()), two_devices(device.dump()), two_threads(threads.dump()), on_cpu(cpu.dump());
    const auto compared = [&](const TemporaryFile& other) {
        const Finished finished = bench({"--compare", base.path().string(), other.path().string()});
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return finished.output;
    };
    CHECK(contains(compared(other_layers), "| Qwen3 <8B> Q4_K, 36 layers |"));
    CHECK(contains(compared(other_layers), "| Qwen3 <8B> Q4_K, 2 layers "));
    CHECK(!contains(compared(other_layers), "1.00x"));
    CHECK(contains(compared(other_file), "| Qwen3 <8B> Q4_K (b.gguf) |"));
    CHECK(contains(compared(other_file), "| Qwen3 <8B> Q4_K (d.gguf) |"));
    CHECK(contains(compared(two_devices), "Fast & Co #0 "));
    CHECK(contains(compared(two_devices), "Fast & Co #1 "));
    CHECK(contains(compared(two_threads), "| tg128, 2 threads |"));
    CHECK(contains(compared(two_threads), "| tg128, 4 threads |"));
    CHECK(contains(compared(on_cpu), "Fast & Co, 2 threads"));
}

TEST_CASE("the threads of the CPU are those that a test ran with") {
    json two = document({result("tq4/tq4", 0, 0, 60)});
    two[0]["device"]["backend"] = "CPU";
    json one = two;
    one[0]["n_threads"] = 1; // of processor_threads 2
    const TemporaryFile a(one.dump()), b(two.dump());
    const Finished finished = bench({"--compare", a.path().string(), b.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, " Fast & Co, 1 thread "));
    CHECK(contains(finished.output, " Fast & Co, 2 threads "));
    CHECK(!contains(finished.output, " ["));
}

TEST_CASE("errors are shown, and differences within them are no differences") {
    const json mine = with_samples(
                   document({result("f16/f16", 0, 0, 50), result("tq4/tq4", 0, 0, 51), result("tq4/tq4", 0, 8192, 50)}), 2),
               theirs =
                   with_samples(on_device(document({result("tq4/tq4", 0, 0, 30), result("f16/f16", 0, 0, 50.5)}), "Slow"), 1);
    const TemporaryFile a(mine.dump()), b(theirs.dump());
    const Finished finished = bench({"--compare", a.path().string(), b.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, "51.00 ± 2.00"));
    CHECK(contains(finished.output, "30.00 ± 1.00 (0.59x)"));
    CHECK(contains(finished.output, "50.50 ± 1.00 (~ 1.01x)"));
    CHECK(contains(finished.output, "~ 1.02x ± 0.03")); // over f16: 2 of 50 and of 51, over sqrt(4)
    CHECK(contains(finished.output, "~ within the noise"));
    CHECK(contains(finished.output, "not above noise (± ")); // 0.4 ms over 8192 tokens, of times that vary by 0.8
}

TEST_CASE("more than all of the bandwidth is no share") {
    const TemporaryFile a(document({result("tq4/tq4", 0, 0, 60, 2.06), result("tq4/tq4", 0, 8192, 50, 0.5)}).dump());
    const Finished finished = bench({"--compare", a.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, "> 100 % *"));
    CHECK(contains(finished.output, "* more than the device was measured to read"));
    CHECK(!contains(finished.output, "206"));
}

TEST_CASE("JSON lines, energy, and one device in two files") {
    json line = result("tq4/tq4", 0, 0, 60);
    line["checked"] = false;
    line["energy"] = {{{"source", "package-0"}, {"joules_per_token", 0.25}}, {{"source", "gpu"}, {"joules_per_token", 0.5}}};
    const TemporaryFile lines(line.dump() + "\n" + line.dump() + "\n"), a(two_depths().dump());
    const Finished finished = bench({"--compare", lines.path().string(), a.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, "0.7500"));
    CHECK(contains(finished.output, "Fast & Co [" + lines.path().stem().string().substr(0, 40) + "]"));
    CHECK(contains(finished.output, "(1)  Fast & Co ["));
    CHECK(contains(finished.output, "(1) |"));
    CHECK(count(finished.output, ": unchecked") == 1);
}

TEST_CASE("what bench writes, bench reads") {
    for (const char* format : {"json", "jsonl"}) {
        const Finished measured = bench({"-p", "4", "-n", "2", "-r", "1", "--no-limits", "-o", format, "--device", "cpu"});
        REQUIRE_MESSAGE(measured.status == 0, measured.error);
        const TemporaryFile file(measured.output);
        const Finished compared = bench({"--compare", file.path().string()});
        REQUIRE_MESSAGE(compared.status == 0, compared.error);
        CHECK(contains(compared.output, "| pp4"));
        CHECK(contains(compared.output, "| tg2"));
    }
}

TEST_CASE("a token's extra time by depth stands beside that which the cache's bytes make") {
    json all = document({result("tq4/tq4", 0, 0, 500), result("tq4/tq4", 0, 1000, 400), result("tq4/tq4", 0, 4000, 250),
                         result("f16/f16", 0, 0, 500), result("f16/f16", 0, 4000, 100), result("tq4/tq4", 512, 0, 1000)});
    for (json& one : all) one["kv_bytes_stored_per_token"] = 1000;
    const auto kernels = [](double ns) {
        return json{{{"kernel", "matvec_q8_0"}, {"bytes", 9e6}, {"ns", 1e3}},
                    {{"kernel", "attention_subgroup"}, {"bytes", 4e6}, {"ns", ns}},
                    {{"kernel", "attention_combine_subgroup"}, {"bytes", 1}, {"ns", 1e9}}};
    };
    all[0]["kernels"] = kernels(1e9);
    all[2]["kernels"] = kernels(2e6); // the deepest: 2 bytes per ns
    const TemporaryFile a(all.dump());
    const Finished finished = bench({"--compare", a.path().string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.output, "Extra ns per token of context"));
    CHECK(contains(finished.output, " 500.0 (500.0) |")); // exactly a line
    CHECK(contains(finished.output, " 2000.0 |"));
    CHECK(!contains(finished.output, "pp512 |  500"));

    all[2]["kernels"][1]["ns"] = -1;
    const TemporaryFile negative(all.dump());
    CHECK(contains(bench({"--compare", negative.path().string()}).error, "\"ns\" that is not a number"));
    all[2]["kernels"] = 7;
    const TemporaryFile no_list(all.dump());
    CHECK(contains(bench({"--compare", no_list.path().string()}).error, "\"kernels\" that are not a list"));
}

TEST_CASE("what is no file of results is refused with what is wrong") {
    json no_speed = two_depths(), negative = two_depths(), fraction = two_depths(), nothing = two_depths(), other = two_depths(),
         newer = two_depths(), llama = two_depths(), no_energy = two_depths(), deep_name = two_depths();
    no_speed[1].erase("avg_ts");
    negative[0]["avg_ts"] = -1;
    fraction[0]["n_depth"] = 0.5;
    nothing[4]["n_prompt"] = 0;
    other[0]["schema"] = "other-bench";
    newer[0]["version"] = 3;
    llama[0].erase("schema");
    no_energy[0]["energy"] = {{{"source", "x"}}};
    deep_name[0]["model"] = "Qwen";
    std::string huge = two_depths().dump();
    huge.replace(huge.find("50.0"), 4, "1e999");
    json many = json::array();
    for (int i = 0; i < 1001; i++) many.push_back(result("tq4/tq4", 0, uint32_t(i), 1));
    const std::pair<std::string, std::string> cases[]{
        {"not json", "is not JSON"},
        {"[]", "has no results"},
        {"[7]", "is not a JSON object"},
        {R"({"schema": "tq-run-bench", "version": 1, "results": []})",
         "before its results became a list like llama-bench's: measure again"},
        {"{}", "has no string \"schema\""},
        {std::string(200, '[') + std::string(200, ']'), "nested deeper"},
        {no_speed.dump(), "result 2 of "},
        {no_speed.dump(), "has no number \"avg_ts\""},
        {negative.dump(), "\"avg_ts\" that is not a number of at least 0"},
        {fraction.dump(), "\"n_depth\" that is not a number of tokens"},
        {nothing.dump(), "measures neither a prompt nor generated tokens"},
        {other.dump(), "has the schema other-bench: it was not written by tq-run bench"},
        {newer.dump(), "has version 3 of its format"},
        {llama.dump(), "has no string \"schema\": it was not written by tq-run bench"},
        {llama_bench("qwen3 8B", 0, 0, 0).dump(), "has a speed of 0"},
        {llama_without("type_k").dump(), "has no string \"type_k\""},
        {llama_without("n_prompt").dump(), "has no number \"n_prompt\""},
        {no_energy.dump(), "joules_per_token"},
        {deep_name.dump(), "\"model\" of result 1"},
        {huge, "is not JSON"},
        {many.dump(), "more than 1000 results"},
        {two_depths().dump() + "\n{\"half\": ", "line 2"},
    };
    for (const auto& [content, text] : cases) {
        const TemporaryFile file(content);
        const Finished finished = bench({"--compare", file.path().string()});
        CAPTURE(text);
        CAPTURE(finished.error);
        CHECK(finished.status == 1);
        CHECK(contains(finished.error, text));
        CHECK(finished.output.empty());
    }
    CHECK(bench({"--compare", "/no/such/file"}).status == 1);
    CHECK(bench({"--compare"}).status == 2);
}

TEST_CASE("names that could steer a terminal do not reach it") {
    const TemporaryFile file(on_device(two_depths(), "evil\x1b[2J|\n").dump());
    const Finished finished = bench({"--compare", file.path().string()});
    REQUIRE(finished.status == 0);
    CHECK(!contains(finished.output, "\x1b"));
    CHECK(contains(finished.output, "evil\\x1b[2J/"));
}

TEST_CASE("energy comes from the sensors that there are, and the zones within others are not counted") {
    const TemporaryDirectory sysfs;
    const auto put = [&](const std::string& file, const std::string& content) {
        std::filesystem::create_directories((sysfs.path() / file).parent_path());
        sysfs.write(file, content + "\n");
    };
    const std::vector<std::string> environment{"TQ_SYSFS=" + sysfs.path().string()};
    const Arguments quick{"-p", "0", "-n", "4", "-r", "2", "--no-limits", "-o", "json"};
    const auto measure = [&](const Arguments& more) {
        Arguments arguments = quick;
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Finished finished = bench(arguments, environment);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return json::parse(finished.output)[0];
    };
    CHECK(!measure({"--device", "cpu"}).contains("energy"));

    for (const char* zone : {"intel-rapl:0", "intel-rapl:0:0"})
        put(std::string("class/powercap/") + zone + "/energy_uj", "5000000");
    put("class/powercap/intel-rapl:0/name", "package-0");
    put("class/powercap/intel-rapl:1/energy_uj", "broken");
    json energy = measure({"--device", "cpu"})["energy"];
    REQUIRE(energy.size() == 1);
    CHECK(energy[0]["source"] == "package-0");
    CHECK(energy[0]["joules"] == 0); // the counter does not change

    const json device = measure({"--device", "0"})["device"];
    put("class/drm/card0/device/vendor", std::to_string(device["vendor_id"].get<uint32_t>()));
    put("class/drm/card0/device/device", std::to_string(device["device_id"].get<uint32_t>()));
    put("class/drm/card0/device/hwmon/hwmon3/name", "amdgpu");
    put("class/drm/card0/device/hwmon/hwmon3/power1_average", "2000000"); // 2 W
    const json measured = measure({"--device", "0"});
    energy = measured["energy"];
    REQUIRE(energy.size() == 2);
    CHECK(energy[1]["source"] == "amdgpu");
    double seconds = 0;
    for (const uint64_t ns : measured["samples_ns"]) seconds += double(ns) * 1e-9;
    CHECK(energy[1]["joules"] >= 1.99 * seconds); // including the time between the samples
    CHECK(energy[1]["joules_per_token"].get<double>() == doctest::Approx(energy[1]["joules"].get<double>() / 8));
}
