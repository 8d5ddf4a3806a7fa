// Statistics of the effect of a cache, against plain formulas, and the log with which a long measurement is continued.
#include "base/error.h"
#include "tests/support/temporary_file.h"
#include "tools/check/quality/divergence.h"
#include "tools/check/quality/run_log.h"
#include <cmath>
#include <doctest/doctest.h>
#include <random>

using namespace tq;
using namespace tq::quality;
using nlohmann::json;

namespace {

std::vector<long double> probabilities(const std::vector<float>& logits) {
    std::vector<long double> p;
    long double sum = 0;
    for (const float l : logits) sum += p.emplace_back(std::exp((long double)l));
    for (long double& v : p) v /= sum;
    return p;
}

std::vector<float> random_logits(std::mt19937& random, size_t count) {
    std::normal_distribution<float> normal(0, 4);
    std::vector<float> out(count);
    for (float& v : out) v = normal(random);
    return out;
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

TEST_CASE("a token's losses and KL divergence are what their formulas say") {
    std::mt19937 random(1);
    for (int i = 0; i < 50; i++) {
        const auto logits = random_logits(random, 300), reference = random_logits(random, 300);
        const auto p = probabilities(logits), q = probabilities(reference);
        const auto next = uint32_t(i * 5);
        long double kl = 0;
        for (size_t j = 0; j < p.size(); j++) kl += q[j] * std::log(q[j] / p[j]);
        const Divergence d = divergence(logits, reference, next);
        CHECK(d.kl == doctest::Approx(double(kl)).epsilon(1e-9));
        CHECK(d.loss == doctest::Approx(double(-std::log(p[next]))).epsilon(1e-12));
        CHECK(d.reference_loss == doctest::Approx(double(-std::log(q[next]))).epsilon(1e-12));

        std::vector<float> moved = reference; // a constant shift changes no probability
        for (float& v : moved) v += 512;
        const Divergence same = divergence(moved, moved, next);
        CHECK(same.kl == 0);
        CHECK(same.same_top);
        CHECK(same.loss == same.reference_loss);
    }
    const std::vector<float> far{-3e38f, 3e38f}, other{3e38f, -3e38f}; // no overflow
    CHECK(divergence(far, far, 1).loss == 0);
    CHECK_FALSE(divergence(far, other, 0).same_top);
}

TEST_CASE("means, standard errors and quantiles of tokens") {
    std::vector<Divergence> tokens;
    for (int i = 1; i <= 100; i++) tokens.push_back({2 + i * 0.01, 2, i * 0.001, i % 4 != 0});
    const Summary s = summarise(tokens);
    CHECK(s.tokens == 100);
    CHECK(s.loss_change.value == doctest::Approx(0.505));
    CHECK(s.loss_change.error == doctest::Approx(0.01 * std::sqrt((100.0 * 100 - 1) / 12 * 100 / 99 / 100)));
    CHECK(s.perplexity.value == doctest::Approx(std::exp(2.505)));
    CHECK(s.perplexity.error == doctest::Approx(std::exp(2.505) * s.loss_change.error));
    CHECK(s.reference_perplexity.value == doctest::Approx(std::exp(2.0)));
    CHECK(s.reference_perplexity.error == 0);
    CHECK(s.kl.value == doctest::Approx(0.0505));
    CHECK(s.kl_median == doctest::Approx(0.050));
    CHECK(s.kl_99 == doctest::Approx(0.099));
    CHECK(s.kl_max == doctest::Approx(0.1));
    CHECK(s.same_top.value == doctest::Approx(0.75));
    CHECK(s.same_top.error == doctest::Approx(std::sqrt(0.75 * 0.25 / 99)));
    CHECK(summarise({}).tokens == 0);
    CHECK(summarise(std::span(tokens).first(1)).kl.error == 0);
}

TEST_CASE("a log is gone on with, and only with that of the same measurement") {
    const test::TemporaryFile file;
    const json what{{"schema", "test"}, {"context", 4}};
    {
        RunLog log(file.path(), what);
        CHECK(log.parts().empty());
        log.add({{"chunk", 0}});
        log.add({{"chunk", 1}});
        CHECK(log.parts().size() == 2);
    }
    const std::string whole = text_of(file.path());
    std::ofstream(file.path(), std::ios::binary | std::ios::app) << "{\"chunk\": 2, \"k"; // the power failed
    {
        RunLog log(file.path(), what);
        REQUIRE(log.parts().size() == 2);
        CHECK(log.parts()[1]["chunk"] == 1);
        CHECK(text_of(file.path()) == whole);
        log.add({{"chunk", 2}});
    }
    CHECK(RunLog(file.path(), what).parts().size() == 3);
    CHECK_THROWS_AS(RunLog(file.path(), {{"schema", "test"}, {"context", 5}}), Error);
    std::ofstream(file.path(), std::ios::binary) << what.dump() << "\nnot json\n{}\n";
    CHECK_THROWS_AS(RunLog(file.path(), what), Error);
    CHECK_THROWS_AS(RunLog(file.path() / "no" / "file", what), Error);
    RunLog nowhere({}, what);
    nowhere.add({{"chunk", 0}});
    CHECK(nowhere.parts().size() == 1);
}

TEST_CASE("a log has one writer at a time, and goes on when that has gone, however it went") {
    const test::TemporaryFile file;
    const json what{{"schema", "test"}};
    {
        RunLog first(file.path(), what);
        first.add({{"chunk", 0}});
        try {
            RunLog second(file.path(), what);
            FAIL("a second writer");
        } catch (const Error& error) {
            CHECK(std::string(error.what()).find("another tq-run is writing to") != std::string::npos);
        }
        first.add({{"chunk", 1}});
    }
    CHECK(RunLog(file.path(), what).parts().size() == 2);
}

TEST_CASE("a changed digit in a log is noticed, and lines without a checksum are taken as they are") {
    const test::TemporaryFile file;
    const json what{{"schema", "test"}};
    {
        RunLog log(file.path(), what);
        log.add({{"chunk", 0}, {"kl", 0.125}, {"invalid", std::nan("")}});
        log.add({{"chunk", 1}, {"kl", 1e-300}});
    }
    CHECK(RunLog(file.path(), what).parts()[0] == json{{"chunk", 0}, {"kl", 0.125}, {"invalid", nullptr}});
    std::string text = text_of(file.path());
    text.replace(text.find("0.125"), 5, "0.225");
    std::ofstream(file.path(), std::ios::binary) << text;
    try {
        RunLog log(file.path(), what);
        FAIL("nothing was noticed");
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find("line 2: this line is damaged") != std::string::npos);
    }
    std::ofstream(file.path(), std::ios::binary) << what.dump() << "\n{\"chunk\":0}\n";
    CHECK(RunLog(file.path(), what).parts() == std::vector<json>{{{"chunk", 0}}});
}
