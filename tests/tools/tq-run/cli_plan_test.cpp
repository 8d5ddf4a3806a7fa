// The memory plan as its users see it: its numbers, and that chat and generate then keep to it.
#include "tests/support/child_process.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

Finished plan(Arguments more, const char* limit) {
    Arguments arguments{"plan", "--synthetic", "qwen3-0.6b:q8_0", "--memory-limit-mb", limit};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::ranges::find(more, "-ctk") == more.end()) arguments.insert(arguments.end(), {"-ctk", "tq4"}); // without a window
    return tq_run(arguments);
}

} // namespace

TEST_CASE("the plan counts weights, cache and scratch, and says what fits") {
    for (const Arguments& where : {Arguments{}, Arguments{"--device", "0"}, Arguments{"--device", "cpu"}}) {
        CAPTURE(where.size());
        Arguments as_json{"-c", "4096", "--json"};
        as_json.insert(as_json.end(), where.begin(), where.end());
        const Finished finished = plan(as_json, "1500");
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        const auto json = nlohmann::json::parse(finished.output);
        CHECK(json["kv_cache_bytes"] == 28 * 8 * 2 * (4096 * 66 + 4096 / 256 * 512)); // and the first tokens of 16 pages in fp16
        CHECK(json["weights_bytes"] > 600u << 20);
        CHECK(json["weights_bytes"] < 640u << 20); // rows are padded on a device
        CHECK(json["available_bytes"] == uint64_t(1500) << 20);
        CHECK(json["total_bytes"] == json["weights_bytes"].get<uint64_t>() + json["kv_cache_bytes"].get<uint64_t>() +
                                         json["scratch_bytes"].get<uint64_t>());
        CHECK(json["fits"] == true);
    }
}

TEST_CASE("the plan names the formats of the weights and their shares") {
    const Finished table = tq_run({"plan", "--synthetic", "qwen3-0.6b:q4_k_m", "-dev", "cpu"});
    CHECK(contains(table.output, "formats   q4_k 55 %, q6_k 45 %\n"));
    const auto json = nlohmann::json::parse(tq_run({"plan", "--synthetic", "qwen3-0.6b:q4_k_m", "-dev", "cpu", "--json"}).output);
    uint64_t bytes = 0;
    for (const auto& one : json["weight_formats"]) bytes += one["bytes"].get<uint64_t>();
    CHECK(json["weight_formats"][0]["format"] == "Q4_K");
    CHECK(bytes == json["weights_bytes"]);
}

TEST_CASE("the plan names a format that another replaces when a file is loaded") {
    tq::Config config = small_config();
    config.hidden_size = config.intermediate_size = 256;
    const TemporaryDirectory directory;
    const std::string path = (directory.path() / "model.gguf").string();
    write_random_model(path, {.config = config, .type = tq::GgmlType::TQ1_0});
    const Finished table = tq_run({"plan", "-m", path, "-dev", "cpu"});
    CAPTURE(table.output);
    CHECK(contains(table.output, "formats   tq1_0 9"));
    CHECK(!contains(table.output, "tq2_0"));
}

TEST_CASE("the largest context of each cache fits, and one token more does not") {
    const auto json = nlohmann::json::parse(plan({"--json"}, "1000").output);
    size_t compared = 0;
    for (const auto& row : json["largest_context"]) {
        const std::string cache = row["cache"], k = cache.substr(0, cache.find('/')), v = cache.substr(cache.find('/') + 1);
        const uint32_t tokens = row["tokens"];
        CAPTURE(cache);
        CHECK(tokens > 1000);
        if (compared++ > 3) continue; // each row starts the program twice
        CHECK(plan({"-ctk", k, "-ctv", v, "-c", std::to_string(tokens), "--fit", "off"}, "1000").status == 0);
        CHECK(plan({"-ctk", k, "-ctv", v, "-c", std::to_string(tokens + 1), "--fit", "off"}, "1000").status == 1);
    }
    CHECK(compared >= 8);
}

TEST_CASE("a prediction keeps to the GPU's bandwidth, falls with the depth, and says what it is") {
    const auto predicted = [](const char* gpu, const char* shape) {
        const Finished finished =
            tq_run({"plan", "--synthetic", shape, "-ctk", "tq4", "-ctv", "tq4", "--predict", gpu, "--json"});
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return nlohmann::json::parse(finished.output);
    };
    const auto json = predicted("rtx 4090", "qwen3-8b:q4_k_m");
    CHECK(json["gpu"] == "RTX 4090");
    CHECK(json["is_prediction"] == true);
    std::map<std::string, double> before, at_32k;
    for (const auto& row : json["tokens"]) {
        const std::string cache = row["cache"];
        const double speed = row["tokens_per_second"];
        CHECK(row["weights_seconds"].get<double>() * 1008e9 > 4.3e9); // of Q4_K_M, without the embedding
        if (row["depth"] == 0) CHECK(row["attention_seconds"] == 0);
        if (before.contains(cache)) CHECK(speed < before[cache]);
        before[cache] = speed;
        if (row["depth"] == 32768) at_32k[cache] = speed;
    }
    CHECK(at_32k.at("tq4/tq4") > 1.3 * at_32k.at("f16/f16"));
    const double faster = predicted("H200", "qwen3-8b:q4_k_m")["tokens"][0]["tokens_per_second"];
    CHECK(faster > 1.2 * json["tokens"][0]["tokens_per_second"].get<double>());
    const Finished text = tq_run({"plan", "--synthetic", "qwen3-0.6b:q8_0", "--predict", "7900"});
    CHECK(contains(text.output, "a prediction, not a measurement: generation of"));
    CHECK(contains(text.output, "(H200 reached 0.42 of such)\n")); // beside each row
    CHECK(contains(text.output, "245 tokens/s, predicted 577"));
    CHECK(json["nearest_measured"]["gpu"] == "H200");
    CHECK(json["nearest_measured"]["ratio"].get<double>() == doctest::Approx(0.4246).epsilon(0.01));
    CHECK(contains(text.output, "on RX 7900 XTX"));
    for (const char* unknown : {"rtx", "GTX 1080", ""}) {
        const Finished refused = tq_run({"plan", "--predict", unknown});
        CHECK(refused.status != 0);
        if (*unknown) CHECK(contains(refused.error, "RTX 4090, RTX 5090"));
    }
}

TEST_CASE("a prediction for a model with a head says what its drafts would gain") {
    const Arguments command{"plan", "--synthetic", "qwen3.5-9b+mtp:q4_k_m", "-ctk", "tq4", "--predict", "4090"};
    Arguments as_json = command;
    as_json.push_back("--json");
    const Finished text = tq_run(command), json = tq_run(as_json);
    REQUIRE_MESSAGE(text.status == 0, text.error);
    CHECK(contains(text.output, "\n  drafts, 60 % right "));
    CHECK(contains(text.output, "\n  drafts, 80 % right "));
    const auto predicted = nlohmann::json::parse(json.output);
    for (const auto& row : predicted.at("tokens")) {
        const double plain = row["tokens_per_second"];
        const auto& drafts = row["drafts"];
        REQUIRE(drafts.size() == 2);
        const double some = drafts[0]["tokens_per_second"], most = drafts[1]["tokens_per_second"];
        CHECK(some > plain);       // least where attention takes most, since each row has its own
        CHECK(some < 2.5 * plain); // the limit of any length: 1 / (1 - 0.6)
        CHECK(most > some);
        CHECK(most < 5 * plain);
        CHECK(drafts[1]["length"] >= drafts[0]["length"]);
        CHECK(drafts[1]["length"] <= 3); // no longer than generate drafts
    }
    const Finished without = tq_run({"plan", "--synthetic", "qwen3.5-9b:q4_k_m", "--predict", "4090", "--json"});
    CHECK_FALSE(contains(without.output, "drafts"));
}

TEST_CASE("what does not fit ends with the table and status 1, before anything is loaded") {
    for (const char* command : {"plan", "generate", "chat"}) {
        CAPTURE(command);
        Arguments arguments{command, "--synthetic", "qwen3-8b:q4_k_m", "--memory-limit-mb", "1024", "-c", "1000", "--fit", "off"};
        if (command != std::string("plan")) arguments.insert(arguments.end(), {"-p", "x"});
        const Finished finished = tq_run(arguments);
        CHECK(finished.status == 1);
        const std::string& table = command == std::string("plan") ? finished.output : finished.error;
        CHECK(contains(table, "weights "));
        CHECK(contains(table, "qwen3-8b:q4_k_m with 1000 tokens does not fit: it takes "));
        CHECK(contains(table, "what would help:"));
        CHECK(contains(table, "a smaller model"));
        CHECK(contains(table, "--memory "));
        if (command == std::string("plan"))
            CHECK(contains(table, "--fit on: ")); // the others run on the CPU if the machine has no GPU
        if (command != std::string("plan"))
            CHECK(contains(finished.error, "tq-run: qwen3-8b:q4_k_m does not fit the 1.00 GiB of --memory"));
    }
}

TEST_CASE("on the CPU a file's weights need not fit, and plan and generate say so; those that are made in memory must") {
    const Arguments room{"--device", "cpu", "-c",       "2048",
                         "-ctk",     "tq4", "--memory", "6M"}; // cache and scratch take 4.9 MiB, the weights 4.3
    const auto demo = [&](Arguments arguments, bool limited) {
        if (limited) arguments.insert(arguments.end(), room.begin(), room.end());
        return tq_run(arguments);
    };
    const std::string note =
        "the weights (4.3 MiB) exceed the memory beside cache and scratch (1.1 MiB): they are read from the file";
    const Finished planned = demo({"plan"}, true);
    CHECK(planned.status == 0);
    CHECK(planned.output.starts_with("tq-run demo with 2048 tokens runs: " + note));
    CHECK(contains(planned.output, "up to 4.3 MiB a token"));
    CHECK_FALSE(contains(planned.output, "what would help"));
    const auto json = nlohmann::json::parse(demo({"plan", "--json"}, true).output);
    CHECK(json["fits"] == false);
    CHECK(json["runs"] == true);
    CHECK(json["mapped_bytes"] == json["weights_bytes"]);

    const Arguments generate{"generate", "-p", "Once upon a time", "-n", "8", "--temp", "0"};
    const Finished limited = demo(generate, true),
                   whole = demo({"generate", "-p", "Once upon a time", "-n", "8", "--temp", "0", "--device", "cpu"}, false);
    CHECK(limited.status == 0);
    CHECK(contains(limited.error, "tq-run: " + note));
    CHECK_FALSE(contains(whole.error, "exceed"));
    CHECK(limited.output == whole.output);
    CHECK(limited.output.size() > 8);

    const Finished made =
        tq_run({"generate", "-p", "x", "--synthetic", "qwen3-0.6b:q8_0", "--device", "cpu", "--memory", "320M"});
    CHECK(made.status == 1);
    CHECK(contains(made.error, "does not fit"));
    CHECK(contains(made.error, "a GGUF file without --weights: 604.1 MiB of these weights are made in memory"));
}

TEST_CASE("a context that nobody asked for shrinks to what fits; one that was asked for does not") {
    const Arguments model{"--synthetic", "qwen3-0.6b:q8_0", "--layers", "1", "-ctk", "f32", "-ctv", "f32"};
    Arguments shrunk{"plan", "--json", "--device", "cpu", "--memory-limit-mb", "240"},
        asked{"plan", "-c", "8192", "--device", "cpu", "--memory-limit-mb", "240"};
    shrunk.insert(shrunk.end(), model.begin(), model.end());
    asked.insert(asked.end(), model.begin(), model.end());
    const Finished fits = tq_run(shrunk);
    REQUIRE_MESSAGE(fits.status == 0, fits.error);
    const uint32_t context = nlohmann::json::parse(fits.output)["context_size"];
    CHECK(context >= 512);
    CHECK(context < 8192);
    CHECK(contains(fits.error, "the context is reduced to " + std::to_string(context) + " tokens"));
    CHECK(tq_run(asked).status == 1);
}

TEST_CASE("a plan for hardware that is not here: no device, no driver, and not this machine's memory") {
    const std::vector<std::string> nowhere{"VK_DRIVER_FILES=/nonexistent", "VK_ICD_FILENAMES=/nonexistent"};
    const auto imagine = [&](Arguments more) {
        more.insert(more.begin(), {TQ_RUN, "plan", "--synthetic", "qwen3-32b:q4_k_m"});
        return run({std::move(more), {}, nowhere});
    };
    for (const std::string size : {"24G", "24GB", "24GiB", "24gib", "24576M", "24576"}) {
        const Finished finished = imagine({"-c", "8k", "--memory", size});
        CAPTURE(size);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        CHECK(finished.output.starts_with("qwen3-32b:q4_k_m with 8192 tokens fits: it takes "));
        CHECK(contains(finished.output, " of 24.00 GiB\n"));
        CHECK(finished.error.empty());
    }
    for (const Arguments& where : {Arguments{}, Arguments{"--device", "cpu"}}) { // far beyond this machine's memory
        Arguments all{"--memory", "900000G", "--json", "-c", "0"};
        all.insert(all.end(), where.begin(), where.end());
        const Finished finished = imagine(all);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        const auto json = nlohmann::json::parse(finished.output);
        CHECK(json["available_bytes"] == uint64_t(900000) << 30);
        for (const auto& row : json["largest_context"]) CHECK(row["tokens"] == 40960); // the model's, and no more
    }
    const Finished small = imagine({"-c", "32k", "--memory", "8G", "--fit", "off"});
    CHECK(small.status == 1);
    CHECK(small.output.starts_with("qwen3-32b:q4_k_m with 32768 tokens does not fit: it takes "));
    const size_t advice = small.output.find("--memory ");
    REQUIRE(advice != std::string::npos);
    const std::string enough = small.output.substr(advice + 9, small.output.find(':', advice) - advice - 9);
    CHECK(imagine({"-c", "32k", "--memory", enough, "--fit", "off"}).status == 0); // the advice is correct
    for (const char* bad : {"8X", "G", "-8G", "8GG", "nan"}) {
        const Finished finished = imagine({"--memory", bad});
        CAPTURE(bad);
        CHECK(finished.status == 2);
        CHECK(contains(finished.error, "it must be a size such as 24G"));
    }
}

TEST_CASE("wrong usage of synthetic models") {
    const std::pair<Arguments, std::string> cases[]{
        {{"plan", "--synthetic", "qwen3-9b"}, "unknown shape 'qwen3-9b'"},
        {{"plan", "--synthetic", "qwen3-8b", "-m", "x.gguf"}, "cannot be used together"},
        {{"plan", "--layers", "3"}, "--layers"},
    };
    for (const auto& [arguments, text] : cases) {
        const Finished finished = tq_run(arguments);
        CAPTURE(finished.error);
        CHECK(finished.status == 2);
        CHECK(contains(finished.error, text));
    }
}
