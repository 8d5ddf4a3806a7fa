// Puts together a Forward whose layers are on several devices: a stage for each device that has some, a Pipeline over them, and
// limits that all can keep. A pass is limited by the weakest stage; kernels are chosen for slices that all have in common, as a
// row must get the same bits on whatever device its layer is.
#include "model/stages/split_forward.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/stages/pipeline.h"
#include "model/stages/staged_forward.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

using Stages = Pipeline::Stages;

// Returns the minimum of all stages' limits, and kernels that suit them all.
PassLimits common_limits(const Stages& stages, const ForwardOptions& options) {
    std::optional<PassLimits> all;
    for (const auto& stage : stages) {
        if (!stage) continue;
        const PassLimits one = stage->limits();
        if (!all) all = one;
        for (const auto member :
             {&PassLimits::batch_size, &PassLimits::max_separate_rows, &PassLimits::separate_room, &PassLimits::separate_slice,
              &PassLimits::max_block_spans, &PassLimits::max_head_rows, &PassLimits::max_hidden_rows})
            (*all).*member = std::min((*all).*member, one.*member);
        all->min_separate_rows = std::max(all->min_separate_rows, one.min_separate_rows);
        all->deterministic = all->deterministic || one.deterministic;
        all->short_block = std::max(all->short_block, one.short_block);
        all->kernels.many = std::max(all->kernels.many, one.kernels.many);
    }
    all->kernels.block = all->batch_size;
    all->deterministic = all->deterministic || all->batch_size <= all->separate_slice; // no slice is longer
    if (options.deterministic || all->deterministic) all->kernels = {};
    return *all;
}

// A block of the whole: several slices. Blocks that stream weights have other kernels than shorter ones. A pass of separate rows:
// two groups of them for each device.
PassLimits block_limits(PassLimits limits, uint32_t slices, const Split& split) {
    const uint32_t stream_rows = split.stream_rows();
    limits.separate_room = limits.max_separate_rows * (slices > 1 ? 2 * split.devices() : 1);
    limits.batch_size *= slices;
    limits.kernels.block *= slices;
    if (stream_rows > 0 && stream_rows <= limits.batch_size) {
        limits.short_block = std::max(limits.short_block, stream_rows - 1);
        limits.kernels.many = std::max(limits.kernels.many, stream_rows);
    }
    return limits;
}

Stages make_stages(const Config& config, const Cache& cache, const ForwardOptions& options, const Split& split,
                   std::span<const MakeStage> make) {
    ENSURE(make.size() == split.devices() && split.layers() == config.num_hidden_layers, "{} devices, {} layers", make.size(),
           split.layers());
    std::vector<bool> used(split.devices());
    for (uint32_t half = 0; half < halves_of(split.layers()); half++) used[split.device_of(half)] = true;
    Stages stages;
    for (uint32_t device = 0; device < split.devices(); device++) {
        ForwardOptions own = options;
        own.held = split.held(device);
        own.streamed = split.streamed(device);
        stages.push_back(used[device] ? make[device](cache, own) : nullptr);
    }
    return stages;
}

} // namespace

void require_no_head(const Config& config) {
    if (config.mtp)
        fail("a head for multi-token prediction runs where the whole model is on one device: choose other drafts, or a placement "
             "on one device");
}

std::unique_ptr<Forward> make_split_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                            const Split& split, std::span<const MakeStage> make) {
    require_no_head(config);
    return make_staged_forward(config, options, [&](const Cache& cache, const ForwardOptions& all) {
        Stages stages = make_stages(config, cache, all, split, make);
        const PassLimits of_slice = common_limits(stages, all);
        // Slices of a block have the kernels of blocks, so none may be as short as those that one device computes otherwise.
        const bool divides = of_slice.kernels.evens_slices() || of_slice.kernels.tokens_alike();
        const PassLimits of_block = block_limits(of_slice, split.parts().size() > 1 && divides ? slices_of_block : 1, split);
        return std::make_unique<Pipeline>(config, weights.token_embd, split, std::move(stages), of_slice, of_block, all.tap);
    });
}

} // namespace tq
