// For commands that compare caches: the weights are loaded or uploaded once, and each forward() gets a cache of its own on them.
// Over ranks the stages hold weights, so each forward() loads its own.
// Measured keys belong to the model and not to a cache: the first forward() whose cache wants them measures them, all others use
// the same ones. check_memory() counts the weights once and the caches and scratch of all forwards that live together.
#include "tools/tq-run/engine/shared_model.h"
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/engine/engine_conditioning.h"
#include "tools/tq-run/engine/memory_table.h"
#include "tools/tq-run/engine/setup.h"

namespace tq {

SharedModel::SharedModel(Setup& setup, Console& console) : setup_(setup), console_(console) {
    require_one_device(setup);
    if (setup.ranks) return; // each cache has its stages
    const Model& model = setup.model;
    TransferStatus status(console);
    const LoadProgress on_load = status.loading(fmt::format("loading {}", model.name));
    warn_of_reading(setup);
    ThreadPool pool(setup.options.threads);
    if (setup.device) {
        tuning_ = gpu::tuning_for(setup.device->capabilities());
        uploaded_ = std::make_shared<const gpu::DeviceWeights>(
            gpu::upload_weights(*setup.device, pool, model.weights, tuning_.weight_interleave, on_load));
    } else {
        const auto mapped = setup.plan().fits() ? MappedMatrices::check : MappedMatrices::leave;
        loaded_ = std::make_shared<const LoadedWeights>(load_weights(pool, model.weights, on_load, mapped));
    }
}

std::unique_ptr<Forward> SharedModel::forward(const KvOptions& kv) const {
    ForwardOptions options = setup_.options;
    options.kv = kv;
    if (!setup_.ranks && wants_measured_keys(kv, setup_.model)) {
        if (!measured_)
            measured_ =
                measured_keys(setup_.model, options, console_, [this](const ForwardOptions& exact) { return open(exact); });
        options.kv.conditioning.calibration = measured_;
    }
    return open(options);
}

std::unique_ptr<Forward> SharedModel::open(const ForwardOptions& options) const {
    if (setup_.ranks) return setup_.placing().open(setup_.model.config, setup_.model.weights, options, {}, {});
    return setup_.device ? make_gpu_forward(*setup_.device, setup_.model.config, uploaded_, options, tuning_)
                         : make_cpu_forward(setup_.model.config, loaded_, options);
}

MemoryPlan plan_together(const Setup& setup, std::span<const KvOptions> caches) {
    MemoryPlan all = setup.plan_alone(setup.options);
    all.kv_cache = all.scratch = 0;
    for (const KvOptions& kv : caches) {
        ForwardOptions options = setup.options;
        options.kv = kv;
        const MemoryPlan one = setup.plan_alone(options);
        all.kv_cache += one.kv_cache;
        all.scratch += one.scratch;
    }
    return all;
}

void check_memory(const Setup& setup, std::span<const KvOptions> caches) {
    if (setup.ranks) return; // they look themselves
    const MemoryPlan all = plan_together(setup, caches);
    if (!all.runs()) fail("{}: {}. Choose a smaller context with -c", setup.device_name, describe(all));
}

} // namespace tq
