// The ablation of tools/check/quality/ablation.h on the demo model: it finds nothing if all is correct, and every planted
// fault at its stage.
#include "model/cpu/forward.h"
#include "tests/support/faulty_forward.h"
#include "tools/check/quality/ablation_record.h"
#include <cmath>
#include <doctest/doctest.h>
#include <map>

using namespace tq;
using namespace tq::quality;
using test::Fault;

namespace {

constexpr uint32_t chunk = 64;

const Model& demo() {
    static const Model model = load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf");
    return model;
}

Chunks text() {
    const std::string story =
        "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it "
        "rained, and the fox ran home. Then Mira came and gave it an apple. The fox was happy. They walked "
        "to the old house and looked at the garden. It was a good day, and in the evening they ate soup and "
        "bread at the table. Please remember: the code of the silver kettle is 4821. Tom is a tailor. On a "
        "rainy morning Tom went to the castle. There Tom found a soft carpet. Next to it sat a lion.";
    return cut(demo().tokenizer.encode(story), chunk, 0, 2);
}

MakeForward with(Fault fault) {
    return [fault](const KvOptions& kv) { return test::make_faulty_forward(demo(), kv, chunk, fault); };
}

Findings ablate(const MakeForward& make, bool past_bugs = false) {
    CacheCosts costs(make, ablation_reference, text());
    const auto measure = [&](const Trial& trial) -> std::optional<CacheCost> {
        if (trial.blocks) return costs.of_blocks({});
        return costs.measure(std::array{trial.kv}, {})[0];
    };
    return run_protocol(
        measure, [](const Outcome&) {}, past_bugs);
}

Summary summary(double ppl, double reference, double kl = 0, double error = 0) {
    return {
        .tokens = 100, .perplexity = {ppl, 0}, .reference_perplexity = {reference, 0}, .loss_change = {0, error}, .kl = {kl, 0}};
}

// Returns the costs of a table: perplexities by the cache's name, 10 for others.
MeasureTrial table(std::map<std::string, double> perplexities, double error = 0) {
    return [=](const Trial& trial) {
        const auto found = perplexities.find(describe(trial.kv));
        const double ppl = found == perplexities.end() ? 10 : found->second;
        return CacheCost{summary(ppl, 10, std::fabs(ppl - 10) * 0.01, error)};
    };
}

} // namespace

TEST_CASE("no false alarm, on the CPU path and on the one that can have faults, which compute the same") {
    const Findings right = ablate(
        [](const KvOptions& kv) { return make_cpu_forward(demo().config, demo().weights, {.kv = kv, .context_size = chunk}); });
    for (const Outcome& o : right.outcomes) CHECK_MESSAGE(o.verdict != Verdict::invalid, o.trial.run);
    CHECK_MESSAGE(!right.bug, right.bug->trial.run << ": " << right.bug->reason);
    REQUIRE(right.winner);
    CHECK(right.outcomes[0].trial.run == "identity");
    CHECK(right.outcomes[0].cost->summary.kl.value < 1e-6);
    const Findings same = ablate(with(Fault::none));
    CHECK(!same.bug);
    REQUIRE(same.outcomes.size() == right.outcomes.size());
    for (size_t i = 0; i < same.outcomes.size(); i++) {
        const KvOptions& kv = same.outcomes[i].trial.kv;
        const double epsilon =
            is_coded(kv.k) || is_coded(kv.v) ? 2e-2 : 1e-4; // rounding gives some values a neighbouring code instead
        CAPTURE(same.outcomes[i].trial.run);
        CHECK(same.outcomes[i].cost->summary.perplexity.value ==
              doctest::Approx(right.outcomes[i].cost->summary.perplexity.value).epsilon(epsilon));
    }
}

TEST_CASE("a planted fault is found, and named by its stage") {
    for (const auto& [fault, run] : {std::pair(Fault::swapped_everywhere, "identity"),
                                     {Fault::swapped_unless_f32, "store"},
                                     {Fault::swapped_if_coded, "blocks"},
                                     {Fault::conditioned_twice, "conditioning"},
                                     {Fault::other_rotation, "rotation"},
                                     {Fault::scale_twice, "TurboQuant"},
                                     {Fault::rule_twice, "least-squares"},
                                     {Fault::other_haar, "haar"},
                                     {Fault::trellis_shifted, "trellis"},
                                     {Fault::quarters_swapped, "unequal bits"},
                                     {Fault::window_shifted, "window"}}) {
        CAPTURE(run);
        const Findings findings = ablate(with(fault));
        REQUIRE(findings.bug);
        CHECK(findings.bug->trial.run == run);
        CHECK(findings.bug->reason != "");
        CHECK_FALSE(findings.winner);
        CHECK(findings.outcomes.back().trial.run == run); // nothing is measured after a bug
    }
}

TEST_CASE("values that are not finite are invalid, and end the ablation") {
    const auto measure = [](const Trial& trial) -> std::optional<CacheCost> {
        if (trial.kv.scale_rule == ScaleRule::norm) throw NonFinite("not finite");
        return CacheCost{summary(10, 10)};
    };
    const Findings findings = run_protocol(
        measure, [](const Outcome&) {}, false);
    REQUIRE(findings.bug);
    CHECK(findings.bug->trial.run == "norm");
    CHECK(findings.bug->verdict == Verdict::invalid);
    CHECK(judge({}, CacheCost{summary(INFINITY, 10)}).verdict == Verdict::invalid);
}

TEST_CASE("verdicts are those of the budgets") {
    for (const auto& [ppl, verdict] : {std::pair(10.0, Verdict::pass),
                                       {10.29, Verdict::pass},
                                       {10.31, Verdict::warn},
                                       {10.99, Verdict::warn},
                                       {11.01, Verdict::fail},
                                       {9.75, Verdict::pass},
                                       {8.9, Verdict::fail}}) {
        CAPTURE(ppl);
        CHECK(judge({}, CacheCost{summary(ppl, 10)}).verdict == verdict);
    }
    CHECK(judge({}, CacheCost{summary(2.11, 2)}).verdict == Verdict::warn); // 5.5 %
    Trial limited;
    limited.max_kl = 0.05;
    CHECK_FALSE(judge(limited, CacheCost{summary(10, 10, 0.04)}).bug);
    CHECK(judge(limited, CacheCost{summary(10, 10, 0.06)}).bug);
    CHECK(judge(limited, CacheCost{summary(12, 10, 0.04)}).bug);
    CHECK_FALSE(judge(limited, CacheCost{summary(233, 230)}).bug);        // 1.3 %
    CHECK_FALSE(judge(limited, CacheCost{summary(12, 10, 0, 0.06)}).bug); // 2 +- 0.7
    CHECK(judge(limited, CacheCost{summary(233, 230)}).verdict == Verdict::fail);
    limited.few_bits = true; // the model is sensitive to them
    CHECK(judge(limited, CacheCost{summary(12, 10, 0.04)}).verdict == Verdict::fail);
    CHECK_FALSE(judge(limited, CacheCost{summary(12, 10, 0.04)}).bug);
    CHECK(judge(limited, CacheCost{summary(10, 10, 0.06)}).bug);
    CHECK(judge(limited, CacheCost{summary(NAN, 10)}).bug);
    CHECK(judge(limited, CacheCost{summary(10, 10, 0.04)}).verdict == Verdict::pass);
    CHECK(judge(limited, CacheCost{summary(10, 10, 0.06)}).verdict == Verdict::fail);
}

TEST_CASE("the staircase takes the fewest bits that pass, one thing at a time") {
    const Findings found = run_protocol(
        table({{"tq3/tq8", 10.5},
               {"tq4/tq2", 14},
               {"tq4/tq3", 10.2},
               {"tq4/tq3t", 10.21},
               {"tq4/tq3, window 64", 10.1},
               {"tq4u/tq3, window 64", 10.05}}),
        [](const Outcome&) {}, false);
    CHECK_FALSE(found.bug);
    REQUIRE(found.winner);
    CHECK(describe(found.winner->trial.kv) == "tq4u/tq3, window 64");
    CHECK(found.confirmed);
    std::vector<std::string> runs;
    for (const Outcome& o : found.outcomes) runs.push_back(o.trial.run);
    CHECK(std::vector(runs.end() - 7, runs.end()) ==
          std::vector<std::string>{"keys 3", "keys 4", "values 2", "values 3", "trellis values", "window 64", "unequal keys"});

    const Findings noisy = run_protocol(
        table({}, 0.02), [](const Outcome&) {}, false); // 10 +- 0.2 may be 10.4
    REQUIRE(noisy.winner);
    CHECK(describe(noisy.winner->trial.kv) == "tq3/tq2");
    CHECK(noisy.outcomes.back().trial.run == "trellis keys");
    CHECK(describe(noisy.outcomes.back().trial.kv) == "tq3t/tq2");
    CHECK_FALSE(noisy.confirmed);

    std::map<std::string, double> none;
    for (const char* k : {"tq3", "tq4", "tq5", "tq6", "tq8"}) none[std::string(k) + "/tq8"] = 10.8;
    CHECK_FALSE(run_protocol(
                    table(none), [](const Outcome&) {}, true)
                    .winner);
}

TEST_CASE("a bug ends it unless one asks to go past it, and so does a stop") {
    const auto faulty = table({{"tq8/tq8, window 1024", 20}});
    const Findings ended = run_protocol(
                       faulty, [](const Outcome&) {}, false),
                   past = run_protocol(
                       faulty, [](const Outcome&) {}, true);
    REQUIRE(ended.bug);
    CHECK(ended.outcomes.size() == 5);
    REQUIRE(past.bug);
    CHECK(past.bug->trial.run == "rotation");
    CHECK(past.winner);
    const Findings stopped = run_protocol([](const Trial&) { return std::nullopt; }, [](const Outcome&) {}, false);
    CHECK(stopped.stopped);
    CHECK_FALSE(stopped.bug);
}

TEST_CASE("a line of JSON gives back the cost, and null is what is not finite") {
    Outcome outcome = judge({.run = "values 4", .isolates = "values", .kv = {KvType::tq8, KvType::tq4}},
                            CacheCost{{.tokens = 54,
                                       .perplexity = {10.2, 0.3},
                                       .reference_perplexity = {10, 0.25},
                                       .loss_change = {0.0198, 0.001},
                                       .kl = {0.011, 0.002},
                                       .same_top = {0.98, 0.01},
                                       .kl_median = 0.005,
                                       .kl_99 = 0.1,
                                       .kl_max = 0.2},
                                      2.5,
                                      1.5});
    const Evaluation evaluation{demo().config, "ab12", {{"device", "none"}}};
    const nlohmann::json line = nlohmann::json::parse(to_json(outcome, evaluation).dump());
    CHECK(line["config"]["key_bits"] == 8);
    CHECK(line["config"]["value_bits"] == 4);
    CHECK(line["config"]["window"] == 0);
    CHECK(line["eval"]["text_sha"] == "ab12");
    CHECK(line["ppl_fp16"] == 10.0);
    CHECK(line["abs_delta"].get<double>() == doctest::Approx(0.2));
    CHECK(line["rel_delta"].get<double>() == doctest::Approx(0.02));
    CHECK(line["abs_delta_error"].get<double>() == doctest::Approx(0.0102));
    CHECK(line["runtime_sec"]["tq"] == 2.5);
    CHECK(line["verdict"] == "pass");
    CHECK(line["device"] == "none");
    CHECK(is_of(line, outcome.trial));
    const CacheCost cost = cost_of(line);
    CHECK(cost.summary.tokens == 54);
    CHECK(cost.summary.kl.error == 0.002);
    CHECK(cost.summary.kl_max == 0.2);
    CHECK(cost.reference_seconds == 1.5);

    outcome = judge(outcome.trial, std::nullopt);
    const nlohmann::json invalid = nlohmann::json::parse(to_json(outcome, evaluation).dump());
    CHECK(invalid["ppl_tq"].is_null());
    CHECK(invalid["verdict"] == "invalid");
    CHECK_THROWS_AS(cost_of(invalid), NonFinite);
    CHECK_THROWS_WITH_AS(cost_of(nlohmann::json::object()), doctest::Contains("damaged"), Error);
}
