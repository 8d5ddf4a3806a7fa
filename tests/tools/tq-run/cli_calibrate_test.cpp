// tq-run calibrate, and --kv-condition and --kv-window of the commands that store keys.
#include "tests/support/child_process.h"
#include "tests/support/stressed_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
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
    CHECK(contains(plan.output, "tq4/tq4, conditioned by norms"));
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
    CHECK(contains(tq_run({"plan", "--device", "cpu", "--kv", "compact"}).output, "tq4t/tq2t, window 64"));
    CHECK(contains(tq_run({"plan", "--device", "cpu", "--kv", "compact", "--kv-window", "0"}).output, "in tq4t/tq2t\n"));
    const Finished bench =
        tq_run({"bench", "--device", "cpu", "-p", "16", "-n", "4", "-r", "1", "--kv-window", "3", "-o", "jsonl"});
    REQUIRE_MESSAGE(bench.status == 0, bench.error);
    CHECK(nlohmann::json::parse(bench.output.substr(0, bench.output.find('\n'))).at("kv_window_bytes") == 4 * 2 * 19 * 2 * 256);
    const Finished residual = tq_run({"logits", "--ids", "1", "--device", "cpu", "-ctv", "tq3q", "--kv-window", "3"});
    CHECK(residual.status == 1);
    CHECK(contains(residual.error, "choose another -ctv"));
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
