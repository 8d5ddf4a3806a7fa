// Which experts tokens of a whole model go to, in the reference and on the CPU path.
#include "model/cpu/forward.h"
#include "model/reference/forward.h"
#include "tests/support/golden.h"
#include "tests/support/hybrid_golden.h"
#include "tests/support/router.h"

using namespace tq;

static std::vector<MakeTapped> both(const Config& config, const Weights& weights) {
    return {[&](const ForwardOptions& o) { return make_cpu_forward(config, weights, o); },
            [&](const ForwardOptions& o) { return make_reference_forward(config, weights, o, host::named(o.tap)); }};
}

TEST_CASE("tokens go to the golden experts, with the golden weights") {
    each_golden_mixture([](const Golden& golden) {
        for (const MakeTapped& make : both(golden.config, golden.weights)) check_router(golden, make);
    });
    for (const auto& path : hybrid_golden_files()) {
        const Golden golden = load_golden(path);
        if (golden.config.num_experts == 0) continue;
        for (const MakeTapped& make : both(golden.config, golden.weights)) check_router(golden, make);
    }
}

TEST_CASE("equal rows of a router have equal products in blocks of any size") {
    const UndecidedMixture model;
    for (const MakeTapped& make : both(model.config, model.weights)) check_undecided(model, make);
}
