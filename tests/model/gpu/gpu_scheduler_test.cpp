// A scheduler on a device: requests together are answered as each alone, also with too few pages and after the device was lost.
#include "model/gpu/forward.h"
#include "tests/support/scheduler.h"

namespace tq {
namespace {

TEST_CASE("requests together are answered by a device as each alone") {
    Device device;
    const SmallModel model;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    SUBCASE("in blocks") { check_scheduler(model, make, {}, 6, false); }
    SUBCASE("with too few pages, after the device was lost") { check_scheduler(model, make, {.pages = 5}, 4, true); }
}

} // namespace
} // namespace tq
