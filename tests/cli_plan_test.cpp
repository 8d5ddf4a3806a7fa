// The memory plan as its users meet it: what it counts, and that what it promises is what chat and generate then do.
#include "tests/child_process.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

Finished tq_run(Arguments arguments) {
    arguments.insert(arguments.begin(), TQ_RUN);
    return run({std::move(arguments), {}, {}});
}

Finished plan(Arguments more, const char* limit) {
    Arguments arguments{"plan", "--synthetic", "qwen3-0.6b:q8_0", "--memory-limit-mb", limit};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tq_run(arguments);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("the plan counts weights, cache and scratch, and says what fits") {
    for (const Arguments& where : {Arguments{}, Arguments{"--device", "cpu"}}) {
        CAPTURE(where.size());
        Arguments as_json{"-c", "4096", "--json"};
        as_json.insert(as_json.end(), where.begin(), where.end());
        const Finished finished = plan(as_json, "1500");
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        const auto json = nlohmann::json::parse(finished.output);
        CHECK(json["kv_cache_bytes"] == 4096 * 28 * 8 * 2 * 66);
        CHECK(json["weights_bytes"] > 600u << 20);
        CHECK(json["weights_bytes"] < 640u << 20); // rows are padded on a device
        CHECK(json["available_bytes"] == uint64_t(1500) << 20);
        CHECK(json["total_bytes"] == json["weights_bytes"].get<uint64_t>() + json["kv_cache_bytes"].get<uint64_t>() +
                                         json["scratch_bytes"].get<uint64_t>());
        CHECK(json["fits"] == true);
    }
}

TEST_CASE("the largest context of each cache fits, and one token more does not") {
    const auto json = nlohmann::json::parse(plan({"--json"}, "1000").output);
    size_t compared = 0;
    for (const auto& row : json["largest_context"]) {
        const std::string cache = row["cache"], k = cache.substr(0, cache.find('/')), v = cache.substr(cache.find('/') + 1);
        const uint32_t tokens = row["tokens"];
        CAPTURE(cache);
        CHECK(tokens > 1000);
        if (compared++ > 3) continue; // each row takes two starts of the program
        CHECK(plan({"-ctk", k, "-ctv", v, "-c", std::to_string(tokens)}, "1000").status == 0);
        CHECK(plan({"-ctk", k, "-ctv", v, "-c", std::to_string(tokens + 1)}, "1000").status == 1);
    }
    CHECK(compared >= 8);
}

TEST_CASE("what does not fit ends with the table and status 1, before anything is loaded") {
    for (const char* command : {"plan", "generate", "chat"}) {
        CAPTURE(command);
        Arguments arguments{command, "--synthetic", "qwen3-8b:q4_k_m", "--memory-limit-mb", "1024", "-c", "1000"};
        if (command != std::string("plan")) arguments.insert(arguments.end(), {"-p", "x"});
        const Finished finished = tq_run(arguments);
        CHECK(finished.status == 1);
        const std::string& table = command == std::string("plan") ? finished.output : finished.error;
        CHECK(contains(table, "weights "));
        CHECK(contains(table, "it does not fit; what would help:"));
        CHECK(contains(table, "a smaller model"));
        CHECK(contains(table, "a higher --memory-limit-mb"));
        if (command != std::string("plan")) CHECK(contains(finished.error, "tq-run: qwen3-8b:q4_k_m does not fit the memory of"));
    }
}

TEST_CASE("a context that nobody asked for shrinks to what fits; one that was asked for does not") {
    const Arguments model{"--synthetic", "qwen3-0.6b:q8_0", "--layers", "1", "-ctk", "f32", "-ctv", "f32"};
    Arguments shrunk{"plan", "--json", "--memory-limit-mb", "240"}, asked{"plan", "-c", "8192", "--memory-limit-mb", "240"};
    shrunk.insert(shrunk.end(), model.begin(), model.end());
    asked.insert(asked.end(), model.begin(), model.end());
    const Finished fits = tq_run(shrunk);
    REQUIRE_MESSAGE(fits.status == 0, fits.error);
    const uint32_t context = nlohmann::json::parse(fits.output)["context_size"];
    CHECK(context >= 512);
    CHECK(context < 8192);
    CHECK(contains(fits.error, "the context is " + std::to_string(context) + " tokens"));
    CHECK(tq_run(asked).status == 1);
}

TEST_CASE("wrong usage of synthetic models") {
    const std::pair<Arguments, std::string> cases[]{
        {{"plan", "--synthetic", "qwen3-9b"}, "there is no shape 'qwen3-9b'"},
        {{"plan", "--synthetic", "qwen3-8b", "-m", "x.gguf"}, "exclude each other"},
        {{"plan", "--layers", "3"}, "--layers"},
    };
    for (const auto& [arguments, text] : cases) {
        const Finished finished = tq_run(arguments);
        CAPTURE(finished.error);
        CHECK(finished.status == 2);
        CHECK(contains(finished.error, text));
    }
}
