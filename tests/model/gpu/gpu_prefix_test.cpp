// Sessions on a device with a prefix cache: warm is cold, bit for bit, with the blocks of a device.
#include "model/gpu/forward.h"
#include "tests/support/prefix_sessions.h"

using namespace tq;

TEST_CASE("warm is cold") {
    const SmallModel model;
    Device device;
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    };
    const std::vector<KvOptions> all{{KvType::tq4, KvType::tq4}, {KvType::q8_0, KvType::tq3t}, {KvType::f32, KvType::a4_32}};
    check_warm_is_cold(model, make, all, {300, 310, 301, 700, 290, 258}, false);
    check_warm_is_cold(model, make, {all[0]}, {300, 310, 301, 700, 290, 258}, true);
}
