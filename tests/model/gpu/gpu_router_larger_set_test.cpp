// Which experts tokens of a whole model go to on the device, by the products of its routers: what route.comp makes of them is
// compared in conformance rows.
#include "model/gpu/forward.h"
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"
#include "tests/support/router.h"

using namespace tq;

TEST_CASE("tokens go to the golden experts, with the golden weights") {
    Device device;
    each_golden_mixture([&](const Golden& golden) {
        check_router(golden, [&](const ForwardOptions& options) {
            return exact_kernels(device).make(device, golden.config, golden.weights, options);
        });
    });
}

TEST_CASE("equal rows of a router have equal products in blocks of any size") {
    const UndecidedMixture model;
    Device device;
    for (const DeviceKernels& kernels : kernels_to_check(device)) {
        CAPTURE(kernels.name());
        check_undecided(
            model, [&](const ForwardOptions& options) { return kernels.make(device, model.config, model.weights, options); });
    }
}
