// Which experts tokens go to.
#include "model/host/routes.h"
#include <cmath>
#include <doctest/doctest.h>
#include <limits>

using namespace tq::host;
using Ids = std::vector<uint32_t>;

TEST_CASE("the largest logits win, of equal ones that of the lower id, and their weights are softmax's") {
    const std::vector<float> logits{1, 3, 2, 3, -1, 0, /**/ 0, 0, 0, 0, 0, 0, /**/ -5, -6, -7, -8, -9, -10};
    for (const bool normalise : {true, false}) {
        CAPTURE(normalise);
        Routes routes;
        route(routes, logits, 6, 3, normalise);
        CHECK(routes.ids == Ids{1, 3, 2, 0, 1, 2, 0, 1, 2});
        for (size_t t = 0; t < 3; t++) {
            double sum = 0, chosen = 0, total = 0;
            for (size_t i = 0; i < 6; i++) total += std::exp(double(logits[t * 6 + i]));
            for (size_t i = 0; i < 3; i++) chosen += std::exp(double(logits[t * 6 + routes.ids[t * 3 + i]]));
            for (size_t i = 0; i < 3; i++) {
                const double weight = std::exp(double(logits[t * 6 + routes.ids[t * 3 + i]])) / (normalise ? chosen : total);
                CHECK(double(routes.weights[t * 3 + i]) == doctest::Approx(weight).epsilon(1e-6));
                sum += double(routes.weights[t * 3 + i]);
            }
            CHECK(sum == doctest::Approx(normalise ? 1 : chosen / total).epsilon(1e-6));
        }
    }
}

TEST_CASE("logits may be far apart, infinite or no numbers") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    Routes routes;
    route(routes, std::vector<float>{-3e38f, 3e38f, 0, 1}, 4, 2, true);
    CHECK(routes.ids == Ids{1, 3});
    CHECK(routes.weights == std::vector<float>{1, 0});
    route(routes, std::vector<float>{nan, -infinite, nan, 1}, 4, 3, true);
    CHECK(routes.ids == Ids{0, 2, 3});
    for (const float weight : routes.weights) CHECK(std::isnan(weight));
    route(routes, std::vector<float>{nan, nan, nan, nan}, 4, 4, false);
    CHECK(routes.ids == Ids{0, 1, 2, 3});
    CHECK(std::isnan(routes.weights[0]));
}

TEST_CASE("pairs are grouped by expert, in order, and experts without any have no group") {
    const ExpertGroups groups = group_by_expert(Ids{3, 0, 3, 5, 0, 3}, 6);
    CHECK(groups.pairs == Ids{1, 4, 0, 2, 5, 3});
    REQUIRE(groups.groups.size() == 3);
    CHECK(groups.groups[0].expert == 0);
    CHECK(groups.groups[1].expert == 3);
    CHECK(groups.groups[1].first == 2);
    CHECK(groups.groups[1].end == 5);
    CHECK(groups.groups[2].expert == 5);
    CHECK(groups.groups[2].end == 6);
    CHECK(group_by_expert({}, 6).groups.empty());
}
