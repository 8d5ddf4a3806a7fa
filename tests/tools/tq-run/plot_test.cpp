// tools/plot: pictures of logs and of bench's results that a test writes, and invalid files.
#include "model/files/formats/json.h"
#include "tests/support/child_process.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;
using nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;

const std::string python = "/usr/bin/python3";

Finished plot(const Arguments& arguments, Arguments environment = {}) {
    Arguments all{python, (std::filesystem::path(TQ_SOURCE_DIR) / "tools/plot").string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run({std::move(all), {}, std::move(environment)});
}

// Skips the test if Python or matplotlib is missing; tools/plot that fails otherwise is a fault.
bool can_plot() {
    const Finished help = plot({"--help"});
    if (help.status == 0) return true;
    const bool is_missing =
        help.status == 127 || contains(help.error, ", has no matplotlib") || contains(help.error, ", has no numpy");
    REQUIRE_MESSAGE(is_missing, help.error);
    test::skip("no plots (" + help.error + ")");
    return false;
}

// The message when it refuses: one line, and no picture.
std::string refused(const Arguments& arguments) {
    const Finished finished = plot(arguments);
    CAPTURE(finished.error);
    CHECK(finished.status == 1);
    CHECK(finished.error.starts_with("tools/plot: "));
    CHECK(finished.error.find('\n') == finished.error.size() - 1);
    return finished.error;
}

bool well_formed(const std::filesystem::path& svg) {
    const std::string parse =
        "import sys, xml.etree.ElementTree as tree; assert tree.parse(sys.argv[1]).getroot().tag.endswith('svg')";
    return run({{python, "-c", parse, svg.string()}, {}, {}}).status == 0;
}

size_t count(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

std::string text(const std::vector<json>& rows) {
    std::string out;
    for (const json& row : rows) out += row.dump() + "\n";
    return out;
}

std::string perplexity_log(const std::string& kv, int bytes, double kl, const char* window_key = "kv_window_bytes") {
    const json values{kl, kl, kl, kl, kl, kl, kl, kl * 2, kl * 3, kl, kl, kl, kl, kl, kl, kl, kl * 2};
    return text({{{"schema", "tq-run-perplexity"},
                  {"model", "a $model"},
                  {"text", "t"},
                  {"context", 18},
                  {"kv", kv},
                  {"reference", "f16/f16"},
                  {"kv_bytes_per_token", bytes},
                  {window_key, 18 * 64}},
                 {{"chunk", 0}, {"kl", values}}});
}

json result(const std::string& cache, uint32_t prompt, uint32_t depth, double speed, json share = nullptr) {
    return {{"schema", "tq-run-bench"},
            {"version", 2},
            {"n_prompt", prompt},
            {"n_gen", prompt > 0 ? 0 : 128},
            {"n_depth", depth},
            {"n_threads", 2},
            {"n_batch", 128},
            {"processor_threads", 2},
            {"cache", cache},
            {"model_type", "Qwen3 <8B> $Q4_K"},
            {"model_filename", "/a/b.gguf"},
            {"model", {{"layers", 36}}},
            {"device", {{"backend", "Vulkan"}, {"name", "Fast & Co\x1b"}, {"index", 0}}},
            {"avg_ts", speed},
            {"stddev_ts", 1.5},
            {"samples_ns", {1, 2, 3, 4}},
            {"kv_bytes_stored_per_token", 1000},
            {"bandwidth_share", std::move(share)}};
}

json results() {
    json all{result("f16/f16", 0, 0, 50, 0.5),    result("tq4/tq4", 0, 0, 60, 2.06),
             result("f16/f16", 0, 8192, 20, 0.8), result("tq4/tq4", 0, 8192, 50, 0.7),
             result("tq4/tq4", 512, 0, 1000),     result("tq3t/tq3t, window 16", 0, 0, 55, 0.5)};
    all[3]["kernels"] = {{{"kernel", "attention_subgroup"}, {"bytes", 4e6}, {"ns", 2e6}},
                         {{"kernel", "attention_combine_subgroup"}, {"bytes", 1}, {"ns", 1e9}},
                         {{"kernel", "attention_merge_subgroup"}, {"bytes", 1}, {"ns", 1e9}}};
    return all;
}

} // namespace

TEST_CASE("logs become pictures") {
    if (!can_plot()) return;
    const TemporaryDirectory directory;
    const auto at = [&](const char* name) { return (directory.path() / name).string(); };
    const std::string out = directory.path().string();
    directory.write("a.jsonl", perplexity_log("tq4/tq4", 1056, 0.01));
    directory.write("b.jsonl", perplexity_log("tq3/tq3", 800, 0.1) + "{\"chunk\": 1, \"k"); // truncated
    directory.write("c.jsonl", perplexity_log("tq3t/tq3t, 16 recent", 800, 0.05, "kv_recent_bytes"));
    directory.write("d.jsonl", perplexity_log("tq2t/tq2t, window 16, not conditioned", 500, 0.2));
    directory.write("tune.jsonl", text({{{"schema", "tq-run-tune"}, {"model", "a model"}},
                                        {{"layer", 0}, {"side", "k"}, {"type", "tq2"}, {"kl", 0.1}},
                                        {{"layer", 1}, {"side", "v"}, {"type", "tq2"}, {"kl", 0.02}},
                                        {{"measured", "mix"}}}));
    REQUIRE(tq_run({"needle", "--lengths", "256,160", "--depths", "0,1", "--keys", "1", "--distractors", "2", "--samples", "1",
                    "--device", "cpu", "--log", at("needle.jsonl")})
                .status == 0);
    const Finished all = plot({"quality", at("a.jsonl"), at("b.jsonl"), at("c.jsonl"), at("d.jsonl"), at("tune.jsonl"),
                               at("needle.jsonl"), "-o", out, "--formats", "svg,png"});
    REQUIRE_MESSAGE(all.status == 0, all.error);
    const std::pair<const char*, const char*> pictures[]{{"quality_by_size", ">tq3t+16<"},
                                                         {"quality_by_size", ">tq2t+16*<"},
                                                         {"kl_by_depth", ">tq3<"},
                                                         {"sensitivity", ">tq2<"},
                                                         {"needles", ">f16<"}};
    for (const auto& [name, label] : pictures) {
        CAPTURE(name);
        CHECK(well_formed(directory.path() / (std::string(name) + ".svg")));
        CHECK(contains(read_text_file(directory.path() / (std::string(name) + ".svg"), 1 << 24), label));
        CHECK(std::filesystem::file_size(directory.path() / (std::string(name) + ".png")) > 1000);
    }
    const auto bad = [&](const std::string& bytes) {
        directory.write("bad.jsonl", bytes);
        return refused({"quality", at("a.jsonl"), at("bad.jsonl"), "-o", out});
    };
    CHECK(contains(bad(""), "no log of tq-run"));
    CHECK(contains(bad("{}\n"), "no log of tq-run"));
    CHECK(contains(bad("[\n"), "line 1"));
    CHECK(contains(bad(text({{{"schema", "other"}}})), "'other'"));
    CHECK(contains(bad(text({{{"schema", "tq-run-needle"}}, {{"found", 3}}})), "broken"));
    CHECK(contains(bad(perplexity_log("tq3/tq3", 800, 0.1) + "{\"kl\": [null]}\n"), "broken"));
    std::string other = perplexity_log("tq3/tq3", 800, 0.1);
    other.replace(other.find("$model"), 6, "nother");
    CHECK(contains(bad(other), "cannot stand in one plot"));
    CHECK(contains(refused({"quality", at("a.jsonl"), "-o", at("a.jsonl")}), "a.jsonl"));
}

TEST_CASE("bench's results become pictures with a line for each cache") {
    if (!can_plot()) return;
    const TemporaryFile a(results().dump());
    const TemporaryDirectory directory;
    const auto out = directory.path() / "new";
    const Finished finished = plot({"speed", a.path().string(), "-o", out.string()});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    const std::pair<const char*, size_t> pictures[]{
        {"generation", 3}, {"time", 3}, {"bandwidth", 3}, {"over-f16", 2}, {"prompt", 1}};
    for (const auto& [name, lines] : pictures) {
        const auto path = out / (std::string(name) + "-qwen3--8b---q4_k.svg");
        CAPTURE(path.string());
        CHECK(contains(finished.output, path.string()));
        REQUIRE(well_formed(path));
        const std::string svg = read_text_file(path, 1 << 24);
        CHECK(contains(svg, "Qwen3 &lt;8B&gt; $Q4_K"));
        CHECK(contains(svg, "Fast &amp; Co?"));
        CHECK(contains(svg, "tokens before"));
        CHECK(count(svg, "id=\"line-") == lines);
        CHECK(count(svg, "id=\"expected-") == (std::string(name) == "time")); // no kernel was timed with the other caches
    }
    const std::string generation = read_text_file(out / "generation-qwen3--8b---q4_k.svg", 1 << 24);
    for (const char* label : {">tq4, 50<", ">f16, 20<", ">tq3t+16, 55<", ">8,192<", ">tokens per second<"})
        CHECK(contains(generation, label));
    const std::string share = read_text_file(out / "bandwidth-qwen3--8b---q4_k.svg", 1 << 24);
    CHECK(contains(share, ">tq4, 70<")); // a share above all of the bandwidth is invalid
    CHECK(!contains(share, ">200<"));    // no tick above 100 %: the point of 206 % is left out
    CHECK(contains(read_text_file(out / "time-qwen3--8b---q4_k.svg", 1 << 24), ">tq4, 20<"));
    CHECK(contains(read_text_file(out / "over-f16-qwen3--8b---q4_k.svg", 1 << 24), ">tq4, 2.5<"));
    const std::string expected_times =
        "import pathlib, sys; from plots import speed; "
        "line = [p for p in speed.read_files([pathlib.Path(sys.argv[1])]) if p['cache'] == 'tq4/tq4' and not p['prompt']]; "
        "print(*['%d %.3f' % p for p in speed.expected_ms(line)], sep='\\n')";
    const Finished expected = run({{python, "-c", expected_times, a.path().string()},
                                   {},
                                   {std::string("PYTHONPATH=") + TQ_SOURCE_DIR + "/tools/lab", "PYTHONDONTWRITEBYTECODE=1"}});
    CHECK(expected.output == "0 16.667\n8192 20.763\n"); // 1000 bytes over 2 bytes per ns: 500 ns for each token
}

TEST_CASE("devices of one name, threads and models of one name are told apart") {
    if (!can_plot()) return;
    json threads = results(), layers = results();
    threads.push_back(threads[0]);
    threads.back()["n_threads"] = 4;
    layers[0]["model"]["layers"] = 2;
    const TemporaryDirectory directory;
    directory.write("x.json", threads.dump());
    directory.write("y.jsonl", text(layers));
    const std::string out = directory.path().string();
    const Finished finished =
        plot({"speed", (directory.path() / "x.json").string(), (directory.path() / "y.jsonl").string(), "-o", out});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    const std::string svg = read_text_file(directory.path() / "generation-qwen3--8b---q4_k--36-layers.svg", 1 << 24);
    CHECK(contains(svg, "tg128, 4 threads, Fast"));
    CHECK(contains(svg, "[x]"));
    CHECK(contains(svg, "[y]"));
    CHECK(contains(finished.output, "generation-qwen3--8b---q4_k--2-layers.svg"));
}

TEST_CASE("what is no file of results is refused in a line") {
    if (!can_plot()) return;
    const auto with = [](const char* key, const json& value) {
        json all = results();
        all[1][key] = value;
        return all.dump();
    };
    json no_speed = results();
    no_speed[1].erase("avg_ts");
    std::string huge = results().dump();
    huge.replace(huge.find("50.0"), 4, "1e999");
    const std::pair<std::string, std::string> cases[]{
        {"", "is not JSON"},
        {std::string(100000, '['), "is not JSON"},
        {"\xff\xfe", "cannot be read"},
        {"[]", "has no results"},
        {"[null]", "is no JSON object"},
        {R"({"schema": "tq-run-bench", "version": 1, "results": []})", "measure again"},
        {no_speed.dump(), "result 2 of "},
        {with("avg_ts", 0), "a speed of 0"},
        {with("avg_ts", -1), "\"avg_ts\" that is no number from 0 on"},
        {with("avg_ts", true), "\"avg_ts\" that is no number from 0 on"},
        {huge, "\"avg_ts\" that is no number from 0 on"},
        {with("n_depth", 0.5), "\"n_depth\" that is no count"},
        {with("n_gen", 0), "neither of a prompt nor of generated tokens"},
        {with("schema", "other-bench"), "is of other-bench"},
        {with("version", 3), "version 3"},
        {with("model", "Qwen"), "has no object \"model\""},
        {with("cache", json::array()), "has no text \"cache\""},
        {with("kernels", 7), "\"kernels\" that are no list"},
        {with("kernels", {{{"kernel", "attention"}, {"bytes", 1}, {"ns", nullptr}}}), "\"ns\" that is no number"},
        {text(results()) + "{\"half\": ", "line 7"},
    };
    const TemporaryDirectory directory;
    for (const auto& [content, said] : cases) {
        const TemporaryFile file(content);
        CAPTURE(said);
        CHECK(contains(refused({"speed", file.path().string(), "-o", directory.path().string()}), said));
    }
    CHECK(contains(refused({"speed", "/no/such/file"}), "/no/such/file"));
    CHECK(contains(refused({"speed", "/no/such/file", "--formats", "gif"}), "there are svg, png and pdf"));
    CHECK(std::filesystem::is_empty(directory.path()));
    CHECK(plot({"speed"}).status == 2);
}

TEST_CASE("without matplotlib it says what to install") {
    const TemporaryDirectory directory; // its modules are found before the installed ones
    directory.write("matplotlib.py", "raise ModuleNotFoundError('none', name='matplotlib')\n");
    const Finished finished = plot({"speed", "/no/such/file"}, {"PYTHONPATH=" + directory.path().string()});
    if (finished.status == 127) return test::skip("no " + python);
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "apt install python3-matplotlib"));
    CHECK(finished.error.find('\n') == finished.error.size() - 1);
}
