// tq-run calibrate, and --kv-condition and --kv-window of the commands that store keys.
#include "tests/support/child_process.h"
#include "tests/support/stressed_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cstring>
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

const std::filesystem::path demo = std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf";

std::vector<double> logits(std::vector<std::string> more) {
    std::vector<std::string> arguments{"logits", "--json", "-p", "Once upon a time there was", "-c", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = tq_run(std::move(arguments));
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    return nlohmann::json::parse(finished.output)["logits"];
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    double out = 0;
    for (size_t i = 0; i < a.size(); i++) out = std::max(out, std::abs(a[i] - b[i]));
    return out;
}

} // namespace

TEST_CASE("keys are measured and conditioned, on the CPU and the device") {
    const TemporaryDirectory directory;
    const std::string model = (directory.path() / "model.gguf").string();
    write_stressed_model(demo, model, {.key_spread = 1});
    const auto right = logits({"--device", "cpu", "-ctk", "f32", "-ctv", "f32"});
    for (const char* device : {"cpu", "0"}) {
        CAPTURE(device);
        const std::string keys = (directory.path() / (std::string("keys") + device)).string();
        std::vector<std::string> where{"-m", model};
        if (*device) where.insert(where.end(), {"--device", device});
        auto measure = where;
        measure.insert(measure.begin(), {"calibrate", "-o", keys});
        const Finished measured = tq_run(measure);
        REQUIRE_MESSAGE(measured.status == 0, measured.error);
        CHECK(contains(measured.error, "scales from "));
        CHECK(std::filesystem::file_size(keys) > 2 * 4 * 2 * 128 * 4); // two tensors of four layers and two heads
        for (const std::string& how : {std::string("norms"), keys}) {
            auto with = where;
            with.insert(with.end(), {"--kv-condition", how, "-ctk", "f32", "-ctv", "f32"});
            CHECK(largest_difference(logits(with), right) < 0.01); // logits are about 10; the device's products may be of fp16
            auto tq3 = where, plain = where;
            tq3.insert(tq3.end(), {"--kv-condition", how, "-ctk", "tq3", "-ctv", "tq3"});
            plain.insert(plain.end(), {"--kv-condition", "none", "-ctk", "tq3", "-ctv", "tq3"});
            CHECK(largest_difference(logits(tq3), right) < largest_difference(logits(plain), right));
        }
        const Finished other = tq_run({"logits", "--ids", "1", "--device", "cpu", "--kv-condition", keys});
        CHECK(other.status == 1);
        CHECK(contains(other.error, "made for another model"));
    }
}

TEST_CASE("a cache's conditioning is said") {
    const Finished plan = tq_run({"plan", "--device", "cpu", "--kv-condition", "norms"});
    CHECK(plan.status == 0);
    CHECK(contains(plan.output, "tq4u/tq4, window 256, conditioned by norms"));
    const Finished bench = tq_run({"bench", "--device", "cpu", "-p", "16", "-n", "4", "-r", "1", "--kv-condition", "norms"});
    CHECK_MESSAGE(bench.status == 0, bench.error);
}

TEST_CASE("a window is kept on the CPU and the device, said, and refused where they cannot be") {
    const auto right = logits({"--device", "cpu", "--kv", "f16"});
    for (const char* device : {"cpu", "0"}) {
        std::vector<std::string> all{"--kv-window", "64", "-ctk", "tq2", "-ctv", "tq2"}, none{"-ctk", "tq2", "-ctv", "tq2"};
        for (auto* arguments : {&all, &none})
            if (*device) arguments->insert(arguments->end(), {"--device", device});
        CHECK(largest_difference(logits(all), right) < 0.1 * largest_difference(logits(none), right));
    }
    CHECK(contains(tq_run({"plan", "--device", "cpu", "--kv", "compact"}).output, "tq4u/tq3t, window 256"));
    CHECK(contains(tq_run({"plan", "--device", "cpu", "--kv", "compact", "--kv-window", "0"}).output, "in tq4u/tq3t\n"));
    const Finished bench =
        tq_run({"bench", "--device", "cpu", "-p", "16", "-n", "4", "-r", "1", "--kv-window", "3", "-o", "jsonl"});
    REQUIRE_MESSAGE(bench.status == 0, bench.error);
    CHECK(nlohmann::json::parse(bench.output.substr(0, bench.output.find('\n'))).at("kv_window_bytes") == 4 * 2 * 19 * 2 * 256);
    // If nothing is stored as codes there is no window.
    for (const auto& types : {std::vector<std::string>{"--kv", "f16"}, {"-ctk", "f32", "-ctv", "bf16"}}) {
        std::vector<std::string> all{"plan", "--device", "cpu", "--kv-window", "64"};
        all.insert(all.end(), types.begin(), types.end());
        CHECK_FALSE(contains(tq_run(all).output, "window 64"));
        all.insert(all.end(), {"--kv-layers", "0=tq4"});
        CHECK(contains(tq_run(all).output, ", window 64"));
    }
}

namespace {

// The files that a cache directory keeps of measured keys.
std::vector<std::filesystem::path> kept_in(const std::filesystem::path& cache) {
    std::vector<std::filesystem::path> out;
    if (std::filesystem::exists(cache / "conditioning"))
        for (const auto& entry : std::filesystem::directory_iterator(cache / "conditioning")) out.push_back(entry.path());
    return out;
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// Runs a command with this cache directory.
Finished with_cache(const std::filesystem::path& cache, std::vector<std::string> arguments) {
    return tq_run(std::move(arguments), {}, {"TQ_CACHE_DIR=" + cache.string()});
}

// The logits after a short prompt.
Finished short_logits(const std::filesystem::path& cache, std::vector<std::string> more) {
    std::vector<std::string> arguments{"logits", "--json", "-v", "-p", "Once upon a time there was", "-c", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Finished finished = with_cache(cache, std::move(arguments));
    CHECK_MESSAGE(finished.status == 0, finished.error);
    finished.output = nlohmann::json::parse(finished.output)["logits"].dump();
    return finished;
}

} // namespace

TEST_CASE("by default keys are measured when a model is first loaded, and what was found is kept") {
    const TemporaryDirectory cache;
    const Finished first = short_logits(cache.path(), {"--device", "cpu"});
    REQUIRE(kept_in(cache.path()).size() == 1);
    const std::filesystem::path kept = kept_in(cache.path())[0];
    const std::string bytes = read_file(kept);
    CHECK(contains(bytes, "tq-run-calibration"));
    CHECK(first.output != short_logits(cache.path(), {"--device", "cpu", "--kv-condition", "norms"}).output);
    const auto before = std::filesystem::last_write_time(kept);
    const Finished second = short_logits(cache.path(), {"--device", "cpu"});
    CHECK(second.output == first.output);
    CHECK(!contains(second.error, "measured"));
    CHECK(std::filesystem::last_write_time(kept) == before);
    short_logits(cache.path(), {"--device", "0"}); // takes what the CPU found
    CHECK(std::filesystem::last_write_time(kept) == before);

    std::string other = bytes; // the scales of what is kept are used
    const float half = 0.5f;
    const size_t values = 8 + size_t(uint8_t(bytes[0])) + 256 * size_t(uint8_t(bytes[1]));
    for (size_t i = 0; i < 64; i += 2) std::memcpy(&other[values + i * 4], &half, 4);
    write_file(kept, other);
    CHECK(short_logits(cache.path(), {"--device", "cpu"}).output != first.output);

    std::string nan = bytes;
    nan.replace(values, 4, 4, '\xff');
    const std::string later = std::string(bytes).replace(bytes.find("\"4\""), 3, "\"9\"");
    for (const std::string& damaged : {std::string(), bytes.substr(0, 10), bytes.substr(0, bytes.size() - 1), nan, later}) {
        write_file(kept, damaged);
        const Finished again = short_logits(cache.path(), {"--device", "cpu"});
        CHECK(contains(again.error, "the keys are measured again"));
        CHECK(again.output == first.output);
        CHECK(read_file(kept) == bytes);
    }
    CHECK(kept_in(cache.path()).size() == 1); // no drafts

    const Finished longer = with_cache(cache.path(), {"logits", "--json", "--ids", "1", "--device", "cpu", "--rope-scale", "2",
                                                      "--rope-scaling", "linear"}); // other positions, other means
    CHECK_MESSAGE(longer.status == 0, longer.error);
    CHECK(kept_in(cache.path()).size() == 2);
}

TEST_CASE("what was measured need not be kept") {
    const TemporaryDirectory cache;
    const Finished right = short_logits(cache.path() / "kept", {"--device", "cpu"});
    write_file(cache.path() / "file", "no directory");
    std::filesystem::create_directories(cache.path() / "taken/conditioning" / kept_in(cache.path() / "kept")[0].filename());
    for (const char* where : {"file", "taken"}) {
        const Finished finished = short_logits(cache.path() / where, {"--device", "cpu"});
        CHECK(finished.output == right.output);
        CHECK(contains(finished.error, "what was measured is not kept"));
        const Finished quiet = with_cache(cache.path() / where, {"logits", "--json", "--ids", "1", "--device", "cpu"});
        CHECK(quiet.status == 0);
        CHECK(quiet.error == "");
    }
}

TEST_CASE("keys are not measured where nothing needs it") {
    const TemporaryDirectory cache;
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"plan", "--device", "cpu"},
             {"logits", "--ids", "1", "--device", "cpu", "-ctk", "f16", "-ctv", "f16"},
             {"logits", "--ids", "1", "--device", "cpu", "-ctk", "f16", "-ctv", "tq4"},
             {"logits", "--ids", "1", "--device", "cpu", "--kv-condition", "none"},
             {"logits", "--ids", "1", "--device", "cpu", "--kv-condition", "norms"},
             {"logits", "--ids", "1", "--device", "cpu", "--synthetic", "qwen3-0.6b:q8_0", "--layers", "1"},
             {"calibrate", "--device", "cpu", "-o", (cache.path() / "keys").string()}}) {
        const Finished finished = with_cache(cache.path(), arguments);
        CHECK_MESSAGE(finished.status == 0, finished.error);
        CHECK(kept_in(cache.path()).empty());
    }
}

TEST_CASE("every command that runs a model measures keys, once") {
    const TemporaryDirectory cache;
    std::filesystem::file_time_type before{};
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"bench", "--device", "cpu", "-p", "8", "-n", "2", "-r", "1"},
             {"perplexity", "--device", "cpu", "-c", "64", "--chunks", "1"},
             {"validate", "--device", "0", "-p", "Once", "-n", "1"},
             {"generate", "--device", "cpu", "-p", "Once", "-n", "2"},
             {"ablate", "--device", "cpu", "-c", "64", "--chunks", "1"},
             {"needle", "--device", "cpu", "--samples", "1", "--lengths", "300", "--depths", "0.5"}}) {
        CAPTURE(arguments[0]);
        const Finished finished = with_cache(cache.path(), arguments);
        CHECK_MESSAGE(finished.status <= 1, finished.error); // ablate may find the text too short for a verdict
        REQUIRE(kept_in(cache.path()).size() == 1);
        if (before == std::filesystem::file_time_type{}) before = std::filesystem::last_write_time(kept_in(cache.path())[0]);
        CHECK(std::filesystem::last_write_time(kept_in(cache.path())[0]) == before);
        if (arguments[0] == "bench" || arguments[0] == "perplexity" || arguments[0] == "validate" || arguments[0] == "generate") {
            std::filesystem::remove_all(cache.path() / "conditioning"); // the next one measures, too
            before = {};
        }
    }
}

TEST_CASE("what cannot be measured or used is said") {
    const TemporaryDirectory directory;
    const std::string out = (directory.path() / "keys").string();
    CHECK(tq_run({"calibrate", "--device", "cpu"}).status == 2); // -o
    CHECK(tq_run({"calibrate", "--device", "cpu", "-o", out, "-ctk", "tq3"}).status == 2);
    CHECK(tq_run({"calibrate", "--device", "cpu", "--out", out, "--kv-scale", "norm"}).status == 2);
    CHECK(!contains(tq_run({"calibrate", "--help"}).output, "--kv-window")); // its help has no flag that it refuses
    CHECK(tq_run({"calibrate", "--device", "cpu", "-o", out, "--only", "medians"}).status == 2);
    CHECK(tq_run({"bench", "--kernels", "--kv-condition", "norms"}).status == 2);
    const TemporaryFile text("too short");
    CHECK(contains(tq_run({"calibrate", "--device", "cpu", "-o", out, "-f", text.path().string()}).error,
                   "is too short to measure"));
    CHECK(contains(tq_run({"calibrate", "--device", "cpu", "-o", out, "-c", "8"}).error, "give at least 64 with -c"));
    CHECK(contains(tq_run({"calibrate", "--device", "cpu", "-o", "/no/such/directory/keys"}).error, "cannot write"));
    CHECK_FALSE(std::filesystem::exists(out));
    CHECK(contains(tq_run({"logits", "--ids", "1", "--device", "cpu", "--kv-condition", "norm"}).error,
                   "an existing file, not norm"));
    CHECK(contains(tq_run({"logits", "--ids", "1", "--device", "cpu", "--kv-condition", text.path().string()}).error,
                   "a header of"));
}
