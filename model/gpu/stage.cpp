// A stage on a device: its tuning, its batch size, its buffers, how much memory that takes, and whether norms may be folded
// into products. recordings.cpp has its other passes, run_ahead.cpp sampled tokens.
// computation() names everything that changes bits, so that pages of the prefix cache never meet those of another computation.
#include "model/gpu/stage.h"
#include "base/error.h"
#include "model/gpu/cache.h"
#include "model/gpu/gpu_stage.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"

namespace tq {
namespace {

using namespace gpu;

// Makes the storage of the layers that options hold, with their windows.
DeviceStorage make_storage(Device& device, const Config& config, const ForwardOptions& options) {
    DeviceStorage out(device, config, options.kv, options.pages(), options.held);
    if (window_bytes(config, options) != 0) out.keep_window(device, options.slots, options.kv.window, options.batch_size);
    out.keep_states(device, config, options.slots, options.pending, options.held);
    return out;
}

// A folded norm is rounded otherwise: rows that must have the bits that they have alone do without, and parts of a model. An
// expert that all tokens have takes the normed h itself, and so does a head for multi-token prediction.
Tuning tuning_for_rows(Tuning tuning, const Config& c, const ForwardOptions& o) {
    tuning.fold_norms = tuning.fold_norms && o.slots == 1 && !o.deterministic && !o.speculative && o.held.all() &&
                        c.shared_expert_intermediate_size == 0 && !c.mtp;
    return tuning;
}

// Names the device, its driver and its kernels. A driver that reads the cache by texel buffers does so up to a size of them.
std::string describe_computation(const Device& device, const Tuning& tuning, const ForwardOptions& options, uint32_t pages) {
    const Capabilities& c = device.capabilities();
    std::string text =
        fmt::format("{} {:x}:{:x}, {} {} {:x}, subgroups of {}, {}", c.name, c.vendor_id, c.device_id, c.driver_name,
                    c.driver_info, c.driver_version, tuning.subgroup, describe(tuning, tuning_fields()));
    text += options.deterministic ? ", separate rows" : fmt::format(", blocks of {}", options.batch_size);
    text += fmt::format(", facts {} {} {} {} {} {} {}x{}x{}", tuning.shared_bytes, tuning.max_workgroup, tuning.float16,
                        tuning.int8_dot, tuning.matrix_subgroup, tuning.fold_norms, tuning.matrix.m, tuning.matrix.n,
                        tuning.matrix.k);
    if (tuning.texel_buffers) text += fmt::format(", texel buffers, {} pages", pages);
    return text;
}

} // namespace

GpuStage::GpuStage(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                   std::unique_ptr<WeightStream> stream, const Cache& cache, const ForwardOptions& options, const Tuning& tuning,
                   std::optional<double> layer_seconds)
    : device_(device), config_(config), options_(options), tuning_(tuning_for_rows(tuning, config, options)), cache_(cache),
      weights_(std::move(weights)), stream_(std::move(stream)), storage_(make_storage(device, config, options)),
      vectors_(device, storage_, cache,
               [this](uint32_t slot, uint32_t settled, uint32_t tokens) { settle(slot, settled, tokens); }),
      head_norms_(upload_head_norms(device, config, *weights_, options.kv)), net_(config_, *weights_, head_norms_, storage_),
      layout_(context_layout(config, options)), context_(make_context(device, config, layout_)),
      scratch_(make_scratch(device, ScratchBytes(config, tuning_, options))),
      ids_(device.allocate("ids", 4ull * options.batch_size)),
      step_upload_(device.allocate("step", layout_.rope_at(), Memory::upload)),
      ids_upload_(device.allocate("step ids", 4ull * options.batch_size, Memory::upload)), hidden_crossing_([&] {
          const uint64_t bytes = 4ull * options.batch_size * config.hidden_size;
          return options.held.all() ? std::nullopt
                                    : std::optional(Crossing{device.allocate("h to the device", bytes, Memory::upload),
                                                             device.allocate("h read back", bytes, Memory::readback)});
      }()),
      sampling_upload_(device.allocate("sampling upload", sampling_bytes(config.vocab_size), Memory::upload)),
      sampled_readback_(device.allocate("sampled ids read back", sampled_bytes, Memory::readback)),
      pace_(device.capabilities().type, config, tuning_, layer_seconds.value_or(max_layer_seconds(device.capabilities().type))) {
    prepare();
    for (const Shape& shape : first_shapes()) recorded(shape);
}

std::string GpuStage::computation() const { return describe_computation(device_, tuning_, options_, storage_.pages); }

// A part of a model runs the rows in as many passes as the device needs to stay responsive.
bool GpuStage::run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                         const KeepGoing& keep_going) {
    if (h.empty()) return run_rows(halves, rows, whole, h, keep_going);
    const size_t cols = config_.hidden_size;
    for (uint32_t half = halves.begin; half < halves.end; half++)
        if (!options_.held.holds(half)) stream_->bring(half / 2);
    for (uint32_t first = 0, count; first < rows.count(); first += count) {
        const uint32_t left = rows.count() - first;
        count = next_rows(rows.rows[first].position, left);
        const std::span<float> part = h.subspan(first * cols, count * cols);
        if (!run_rows(halves, count == rows.count() ? rows : rows.part(first, count), whole, part, keep_going)) return false;
    }
    return true;
}

std::shared_ptr<DeviceWeights> gpu::load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                         const LoadProgress& on_load) {
    ThreadPool pool(threads);
    return std::make_shared<DeviceWeights>(upload_weights(device, pool, weights, tuning.weight_interleave, on_load));
}

std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load,
                                      std::optional<double> layer_seconds) {
    const Tuning tuning = tuning_for(device.capabilities());
    const ForwardOptions full = with_batch_size(options, tuning);
    const MemoryPlan plan = plan_memory(device, config, weights, full);
    if (!plan.fits()) fail_out_of_memory("{}: {}", device.capabilities().name, describe(plan));
    require_batch(device.capabilities(), config, tuning, full);
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    auto held = load(device, tuning, held_weights(weights, full.held), full.threads, on_load);
    std::unique_ptr<WeightStream> stream;
    if (!full.streamed.empty())
        stream = std::make_unique<WeightStream>(device, full.threads, weights, full.streamed, tuning.weight_interleave, *held);
    return std::make_unique<GpuStage>(device, config, std::move(held), std::move(stream), cache, full, tuning, layer_seconds);
}

std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                                      const Cache& cache, const ForwardOptions& options, const Tuning& tuning,
                                      std::optional<double> layer_seconds) {
    return std::make_unique<GpuStage>(device, config, std::move(weights), nullptr, cache, options, tuning, layer_seconds);
}

} // namespace tq
