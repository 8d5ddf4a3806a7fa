// The work of a rank other than 0: it has stages of the model, and runs rank 0's requests.
#pragma once
#include "model/memory_plan.h"
#include "model/stages/ranks/transport.h"
#include "model/stages/stage.h"

namespace tq {

// A rank's model and the objects that it needs to run it.
struct RankModel {
    const Config& config;
    MakeStage make;
    std::function<MemoryPlan(const ForwardOptions& options)> plan; // of options.held
    // Opens the device anew. It is called after a stage has failed, before the next is made, when nothing uses the device. May be
    // empty.
    std::function<void()> renew = {};
};

// Returns when rank 0 ends the job. Errors of requests are rank 0's to report. Throws RankLost.
void host_stages(Transport& transport, const RankModel& model);

} // namespace tq
