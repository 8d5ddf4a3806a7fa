#include "tests/support/fault_environment.h"
#include "base/ensure.h"
#include <stdexcept>

namespace tq::test {

bool has_fault_layer() { return *TQ_FAULT_LAYER; }

std::string crashing_driver() { return TQ_FAULT_LAYER "/crashing_driver/crashing_driver.json"; }

std::vector<std::string> fault_environment(const Faults& faults) {
    ENSURE(has_fault_layer(), "the fault layer is built on Linux only");
    // The loader goes on without a layer that is not there, and no call fails.
    if (!std::filesystem::exists(TQ_FAULT_LAYER "/fault_layer.json"))
        throw std::runtime_error("there is no fault layer in " TQ_FAULT_LAYER ": build tq_fault_layer");
    std::vector<std::string> environment{"VK_LAYER_PATH=" TQ_FAULT_LAYER, "VK_INSTANCE_LAYERS=VK_LAYER_TQ_fault",
                                         "TQ_VALIDATE=0"};
    environment.push_back("TQ_FAULT=" + faults.calls);
    environment.push_back("TQ_FAULT_LOG=" + faults.log.string());
    environment.push_back("TQ_FAULT_REWRITE=" + faults.rewrite);
    environment.push_back("TQ_FAULT_KERNEL=" + faults.kernel);
    environment.push_back("TQ_FAULT_REPLACE=" + faults.replacements.string());
    environment.push_back("TQ_FAULT_SHADERS=" TQ_SHADERS);
    return environment;
}

} // namespace tq::test
