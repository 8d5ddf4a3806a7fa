// A scheduler on a device: requests together are answered as each alone, also with too few pages and after the device was lost.
#include "model/gpu/forward.h"
#include "tests/support/hybrids.h"
#include "tests/support/scheduler.h"

namespace tq {
namespace {

TEST_CASE("requests together are answered by a device as each alone") {
    Device device;
    const SmallModel model;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    ModelAlone alone(model, make);
    SUBCASE("in blocks") { check_scheduler(alone, {}, 6, false); }
    SUBCASE("with too few pages, after the device was lost") { check_scheduler(alone, {.pages = 5}, 4, true); }
}

TEST_CASE("requests to a hybrid together are drafted by its head, and answered by a device as each alone") {
    Device device;
    const test::Hybrid model("qwen3_5", GgmlType::F16, {.tied = false, .perfect_mtp = true});
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    ModelAlone alone(model, make);
    check_scheduler(alone, {.drafts = Drafts::lookup_and_head}, 5, true);
}

} // namespace
} // namespace tq
