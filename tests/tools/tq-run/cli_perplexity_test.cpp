// tq-run perplexity on the demo model: its losses against the softmax of logits that are run one by one, on the CPU and the
// device.
#include "model/cpu/forward.h"
#include "model/model.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cmath>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;
using nlohmann::json;

namespace {

constexpr uint32_t context = 32;

Finished perplexity(std::vector<std::string> more) {
    std::vector<std::string> arguments{TQ_RUN, "perplexity", "-c", std::to_string(context)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({std::move(arguments), {}, {}});
}

std::vector<json> lines(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::vector<json> out;
    for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
    return out;
}

const std::string story =
    "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it rained, and "
    "the fox ran home. Then Mira came and gave it an apple. The fox was happy. They walked to the old house "
    "and looked at the garden. It was a good day, and in the evening they ate soup and bread at the table.";

} // namespace

TEST_CASE("losses are those of the tokens run one by one, with f32 caches") {
    const Model model = load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf");
    const std::vector<uint32_t> ids = model.tokenizer.encode(story);
    const auto forward =
        make_cpu_forward(model.config, model.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = context});
    const TemporaryFile text(story);
    for (const char* device : {"cpu", "0"}) {
        CAPTURE(device);
        const TemporaryFile log;
        std::vector<std::string> arguments{"-f",    text.path().string(), "-ctk", "f32", "-ctv", "f32",
                                           "--log", log.path().string()};
        if (*device) arguments.insert(arguments.end(), {"--device", device});
        const Finished finished = perplexity(arguments);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        const std::vector<json> rows = lines(log.path());
        REQUIRE(rows.size() == 1 + ids.size() / context);
        CHECK(rows[0]["kv"] == "f32/f32");
        for (size_t chunk = 0; chunk + 1 < rows.size(); chunk++) {
            REQUIRE(rows[chunk + 1]["loss"].size() == context - 1);
            forward->truncate(0);
            for (size_t i = 0; i + 1 < context; i++) {
                const auto logits = forward->run(std::span(ids).subspan(chunk * context + i, 1));
                double sum = 0;
                for (const float l : logits) sum += std::exp(double(l));
                const double loss = std::log(sum) - logits[ids[chunk * context + i + 1]];
                CHECK(rows[chunk + 1]["loss"][i].get<double>() == doctest::Approx(loss).epsilon(1e-3));
                CHECK(rows[chunk + 1]["kl"][i] < 1e-3); // f16 against f32
            }
        }
    }
}

TEST_CASE("a measurement is gone on with, and says the same as at once") {
    const TemporaryFile text(story), log;
    const std::vector<std::string> at_once{"-f", text.path().string(), "--device", "cpu", "-ctk", "tq3"};
    const Finished whole = perplexity(at_once);
    REQUIRE_MESSAGE(whole.status == 0, whole.error);
    CHECK(contains(whole.output, "perplexity, tq3/tq4"));
    CHECK(contains(whole.output, "cache   tq3/tq4, 928 bytes per token, 4.41x smaller than f16"));
    CHECK(contains(whole.output, "model   tq-run demo, 4 layers"));
    CHECK(contains(whole.output, "their ratio"));
    CHECK(contains(whole.output, " nats"));
    CHECK(!contains(whole.output, "+-"));
    CHECK(contains(whole.output, "perplexity, f16/f16"));
    auto in_parts = at_once;
    in_parts.insert(in_parts.end(), {"--log", log.path().string(), "--chunks", "1"});
    CHECK(contains(perplexity(in_parts).output, "1 chunks of 32 tokens"));
    in_parts.resize(in_parts.size() - 2);
    CHECK(perplexity(in_parts).output == whole.output);
    CHECK(perplexity(in_parts).output == whole.output); // from the log alone
    in_parts.insert(in_parts.end(), {"-ctk", "tq4"});
    const Finished other = perplexity(in_parts);
    CHECK(other.status == 1);
    CHECK(contains(other.error, "is the log of another measurement"));
}

TEST_CASE("without a text a built-in one is measured, and that is said") {
    const Finished finished = perplexity({"--device", "cpu", "--chunks", "2", "--json"});
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    CHECK(contains(finished.error, "built-in text"));
    const json summary = json::parse(finished.output);
    CHECK(summary["text"] == "built-in");
    CHECK(summary["kv"] == "tq4u/tq4, window 256");
    CHECK(summary["tokens"] == 2 * (context / 2 - 1));
    CHECK(summary["perplexity"] > 1.0);
    CHECK(summary["kl"] > 0.0);
    CHECK(summary["perplexity_ratio"].get<double>() ==
          doctest::Approx(summary["perplexity"].get<double>() / summary["reference_perplexity"].get<double>()));
}

TEST_CASE("what cannot be measured is said") {
    const TemporaryFile text("too short");
    CHECK(contains(perplexity({"-f", text.path().string(), "--device", "cpu"}).error, "give a longer text"));
    CHECK(contains(perplexity({"-f", "/no/such/file", "--device", "cpu"}).error, "/no/such/file"));
    CHECK(perplexity({"-f", text.path().string(), "--reference", "tq9"}).status != 0);
    const TemporaryFile longer(story), broken("{}\n");
    CHECK(perplexity({"-f", longer.path().string(), "--device", "cpu", "--log", broken.path().string()}).status == 1);
}
