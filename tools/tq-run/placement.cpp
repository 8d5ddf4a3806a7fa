#include "tools/tq-run/placement.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/cpu/forward.h"
#include "model/cpu/stage.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/predict.h"
#include "model/gpu/stage.h"
#include "model/gpu/tuning_file.h"
#include "model/stages/split_forward.h"
#include "tools/tq-run/console.h"
#include <algorithm>

namespace tq {
namespace {

// Counts the bytes of all stages as those of one model.
class WholeProgress {
  public:
    WholeProgress(const LoadProgress& on_load, uint64_t total) : on_load_(on_load), total_(total) {}

    LoadProgress next() {
        before_ += last_;
        last_ = 0;
        return [this](uint64_t done, uint64_t) {
            last_ = done;
            return !on_load_ || on_load_(std::min(before_ + done, total_), total_);
        };
    }

  private:
    const LoadProgress& on_load_;
    const uint64_t total_;
    uint64_t before_ = 0, last_ = 0;
};

// Assumed: two channels of DDR5, slow graphics cards; microseconds of a part on a device (two submissions and their copies) and
// on the CPU, and of a wait between kernels.
constexpr double cpu_gb_per_s = 50, discrete_gb_per_s = 300, integrated_gb_per_s = 60;
constexpr double device_part_us = 40, cpu_part_us = 20, device_wait_us = 5;

AssumedSpeed speed_of(double gb_per_s, double part_us, double wait_us) {
    return {gb_per_s * gpu::bandwidth_share, part_us * 1e-6, wait_us * 1e-6};
}

// Fills in the speed that is assumed of a device.
void assume_speed(PlacedPart& part, const Capabilities& caps) {
    for (const gpu::KnownGpu& known : gpu::known_gpus())
        if (lowercase(caps.name).find(lowercase(known.name)) != std::string::npos) {
            part.speed = speed_of(known.gb_per_s, device_part_us, known.wait_us);
            part.speed_source = "its maker's figure";
            return;
        }
    const double gb_per_s = caps.type == DeviceType::discrete ? discrete_gb_per_s
                            : caps.type == DeviceType::cpu    ? cpu_gb_per_s
                                                              : integrated_gb_per_s;
    part.speed = speed_of(gb_per_s, device_part_us, device_wait_us);
}

} // namespace

// The slices of all stages are those that suit every device.
ForwardOptions Placing::with_slices(const ForwardOptions& options) const {
    ForwardOptions out = options;
    if (options.batch_size != 0) return out;
    for (size_t i = 0; i < count(); i++) {
        const uint32_t own = gpu::with_batch_size(options, gpu::tuning_for(capabilities(i))).batch_size;
        out.batch_size = out.batch_size == 0 ? own : std::min(out.batch_size, own);
    }
    if (out.batch_size == 0) out.batch_size = cpu_batch_size;
    return out;
}

MemoryPlan Placing::plan_on(size_t device, const Config& config, const Weights& weights, const ForwardOptions& options) const {
    const Weights held = held_weights(weights, options.held);
    if (device == count()) {
        ForwardOptions own = options;
        own.memory_bytes = UINT64_MAX; // the limit is that of devices
        MemoryPlan plan = plan_cpu_memory(config, held, own);
        if (!imagined.empty()) plan.available = std::max(plan.available, plan.total());
        return plan;
    }
    MemoryPlan plan = imagined.empty() ? gpu::plan_memory(*devices[device], config, held, options)
                                       : gpu::plan_memory(imagined[device], config, held, options);
    if (limit_is_all)
        plan.available = memory_limit_bytes;
    else if (memory_limit_bytes != 0)
        plan.available = std::min(plan.available, memory_limit_bytes);
    return plan;
}

std::optional<Split> Placing::choose(const Config& config, const Weights& weights, const ForwardOptions& options,
                                     double short_of) const {
    const PlacementWishes wishes = asked.wishes();
    const std::vector<double> shares = asked.shares();
    if (count() == 0) return std::nullopt;
    if (!shares.empty() && shares.size() != count())
        fail("-ts has {} numbers for {} devices: give one for each device of --device", shares.size(), count());
    ForwardOptions own = with_slices(options);
    const bool one = count() == 1 && !asked.given();
    if (one && (!wishes.fit || (short_of == 0 && plan_on(0, config, weights, options).fits()))) return std::nullopt;
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < count(); i++) {
        const uint64_t available = plan_on(i, config, weights, own).available;
        const auto needs = [this, i, &config, &weights, own](const HeldHalves& held) mutable {
            own.held = held;
            const MemoryPlan plan = plan_on(i, config, weights, own);
            return plan.largest_part <= plan.allocation_limit ? plan.total() : UINT64_MAX;
        };
        candidates.push_back({uint64_t(double(available) * (1 - short_of)), needs, shares.empty() ? 0 : shares[i]});
    }
    Split split = place(config.num_hidden_layers, wishes, candidates);
    if (split.is_whole_on(0)) return std::nullopt;
    return split;
}

std::vector<PlacedPart> Placing::parts(const Config& config, const Weights& weights, const ForwardOptions& options,
                                       const Split& split) const {
    std::vector<PlacedPart> out;
    ForwardOptions own = with_slices(options);
    for (uint32_t i = 0; i <= count(); i++) {
        own.held = split.held(i);
        PlacedPart part{i == count() ? "CPU" : capabilities(i).name, {}, speed_of(cpu_gb_per_s, cpu_part_us, 0)};
        if (i < count()) assume_speed(part, capabilities(i));
        if (own.held.ranges(split.layers()).empty() && !own.held.head())
            part.plan.available = plan_on(i, config, weights, own).available;
        else
            part.plan = plan_on(i, config, weights, own);
        out.push_back(std::move(part));
    }
    return out;
}

MemoryPlan Placing::plan(const Config& config, const Weights& weights, const ForwardOptions& options, const Split& split) const {
    MemoryPlan sum;
    for (const PlacedPart& part : parts(config, weights, options, split)) {
        sum.weights += part.plan.weights;
        sum.kv_cache += part.plan.kv_cache;
        sum.scratch += part.plan.scratch;
        sum.available += part.plan.available;
        sum.mapped += part.plan.mapped;
        sum.parts_fit = sum.parts_fit && part.plan.fits();
        sum.parts_run = sum.parts_run && part.plan.runs();
    }
    return sum;
}

std::unique_ptr<Forward> Placing::open(const Config& config, const Weights& weights, const ForwardOptions& options,
                                       const LoadProgress& on_load) const {
    constexpr double step = 1.0 / 16;
    for (double short_of = 0;; short_of += step) {
        const std::optional<Split> split = choose(config, weights, options, short_of);
        if (devices.empty() || (split && split->is_whole_on(uint32_t(devices.size()))))
            return make_cpu_forward(config, weights, options, on_load);
        try {
            if (!split) return make_gpu_forward(*devices[0], config, weights, options, on_load);
            WholeProgress progress(on_load, weights.bytes());
            std::vector<MakeStage> make;
            for (Device* device : devices)
                make.push_back([&, device](const Cache& cache, const ForwardOptions& own) {
                    return make_gpu_stage(*device, config, weights, cache, own, progress.next());
                });
            make.push_back([&](const Cache& cache, const ForwardOptions& own) {
                return make_cpu_stage(config, weights, cache, own, progress.next());
            });
            return make_split_forward(config, weights, with_slices(options), *split, make);
        } catch (const OutOfMemory& error) {
            if (devices.empty() || asked.fit == "off" || short_of + step >= 1) throw;
            write_error(fmt::format("tq-run: {}: less of the model is placed there\n", error.what()));
        }
    }
}

std::string describe(const Placing& placing, const Split& split) {
    std::string text;
    for (uint32_t i = 0; i < split.devices(); i++) {
        const bool cpu = i + 1 == split.devices();
        const std::string part = describe_part(split, i);
        if (part == "nothing") continue;
        text += fmt::format("{}{}: {}", text.empty() ? "" : "; ",
                            cpu                        ? "CPU"
                            : placing.imagined.empty() ? printable(placing.devices[i]->capabilities().name)
                                                       : placing.imagined[i].name,
                            part);
    }
    return text;
}

} // namespace tq
