// Decides which device has which halves of the layers, and loads the model there. place() (model/stages/placement.h) decides;
// here it gets its numbers: available memory, what a set of halves would need (plan_on), the user's wishes, assumed speeds.
// Streams: on long blocks of a prompt it can be faster to upload weights of the CPU's feed-forward networks than to multiply
// there. That needs room for two layers' weights on the device, so the halves are placed twice: with that room, and if streams
// are not predicted to pay, without.
// Memory that runs short: what a driver reports as free may not be there. load() then raises `short_of`, the share of the memory
// that stays free, by 1/16 and places again. The same happens in a run (make_placed_forward), which keeps the cache's pages. The
// speeds here are assumptions. They choose between placements and are printed as predictions, and no result depends on them.
#include "tools/tq-run/engine/placement.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/cpu/forward.h"
#include "model/cpu/stage.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/predict.h"
#include "model/gpu/stage.h"
#include "model/gpu/tuning_file.h"
#include "model/gpu/weight_stream.h"
#include "model/stages/placed_forward.h"
#include "model/stages/ranks/rank_group.h"
#include "model/stages/ranks/stage_host.h"
#include "model/stages/split_forward.h"
#include "runtime/device.h"
#include "tools/tq-run/cli/console.h"
#include <algorithm>
#include <numeric>
#include <thread>

namespace tq {
namespace {

// Adds up the bytes of all stages, so that the user sees one model load.
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
// Assumed for products with blocks: GFLOP/s of a thread of the CPU, of slow graphics cards and of processors' own GPUs; the share
// that known GPUs reach of their fp32 peak. Assumed for uploads of weights: eight lanes of PCIe 4, or repacking within the
// memory.
constexpr double thread_gflops = 60, discrete_gflops = 3000, integrated_gflops = 500, peak_share = 0.3;
constexpr double discrete_upload_gb_per_s = 12, integrated_upload_gb_per_s = 10;

// Weights that come for each block may take this part of a device's memory.
constexpr uint64_t small_part = 4;

// The share of the devices' memory that is given up each time that memory runs short.
constexpr double short_step = 1.0 / 16;

AssumedSpeed speed_of(double gb_per_s, double part_us, double wait_us, double gflops, double upload_gb_per_s) {
    return {gb_per_s * gpu::bandwidth_share, part_us * 1e-6, wait_us * 1e-6, gflops, upload_gb_per_s};
}

AssumedSpeed speed_of_cpu(uint32_t threads) {
    return speed_of(cpu_gb_per_s, cpu_part_us, 0,
                    thread_gflops * (threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency())), 0);
}

const gpu::KnownGpu* known(const Capabilities& caps) {
    for (const gpu::KnownGpu& gpu : gpu::known_gpus())
        if (lowercase(caps.name).find(lowercase(gpu.name)) != std::string::npos) return &gpu;
    return nullptr;
}

AssumedSpeed speed_of(const Capabilities& caps) {
    const bool discrete = caps.type == DeviceType::discrete;
    const double upload = discrete ? discrete_upload_gb_per_s : integrated_upload_gb_per_s;
    if (const gpu::KnownGpu* gpu = known(caps))
        return speed_of(gpu->gb_per_s, device_part_us, gpu->wait_us, 2 * gpu->ghz * gpu->cores * gpu->lanes * peak_share, upload);
    if (caps.type == DeviceType::cpu) // slower than our own kernels for processors
        return speed_of(cpu_gb_per_s, device_part_us, device_wait_us, thread_gflops / 2, upload);
    return speed_of(discrete ? discrete_gb_per_s : integrated_gb_per_s, device_part_us, device_wait_us,
                    discrete ? discrete_gflops : integrated_gflops, upload);
}

} // namespace

// The slices of all stages are those that suit every device.
// A block of a prompt goes through all stages in the same slices, so the smallest of their sizes is taken. A size that was asked
// for is kept.
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

// `device` == count() is the CPU. Its memory is always enough on an imagined machine, because only the device of that machine is
// described.
MemoryPlan Placing::plan_on(size_t device, const Config& config, const Weights& weights, const ForwardOptions& options) const {
    if (device == count()) {
        ForwardOptions own = options;
        if (count() != 0) own.memory_bytes = UINT64_MAX; // the limit is that of devices
        MemoryPlan plan = plan_cpu_memory(config, held_weights(weights, own.held), own);
        if (!imagined.empty()) plan.available = std::max(plan.available, plan.total());
        if (count() == 0 && memory_limit_bytes != 0) plan.available = std::min(plan.available, memory_limit_bytes);
        return plan;
    }
    MemoryPlan plan = imagined.empty() ? gpu::plan_memory(*devices[device], config, weights, options)
                                       : gpu::plan_memory(imagined[device], config, weights, options);
    if (limit_is_all)
        plan.available = memory_limit_bytes;
    else if (memory_limit_bytes != 0)
        plan.available = std::min(plan.available, memory_limit_bytes);
    return plan;
}

const Capabilities& Placing::capabilities(size_t i) const { return imagined.empty() ? devices[i]->capabilities() : imagined[i]; }

// The common case comes first and costs one plan: a single device that holds everything, without wishes. Returns nothing then, so
// that no split forward stands between.
std::optional<Split> Placing::choose(const Config& config, const Weights& weights, const ForwardOptions& options,
                                     double short_of) const {
    const size_t shares = asked.device_shares().size();
    if (count() == 0) return std::nullopt;
    if (shares != 0 && shares != count())
        fail("-ts has {} numbers for {} devices: give one for each device of --device", shares, count());
    const bool one = count() == 1 && !asked.given();
    if (one && (!asked.wishes().fit || (short_of == 0 && plan_on(0, config, weights, options).fits()))) return std::nullopt;
    const ForwardOptions own = with_slices(options);
    if (!asked.no_op_offload && !options.deterministic && has_room_for_streams(config, weights, own)) {
        const Split split = choose_halves(config, weights, own, short_of, true);
        const uint32_t rows = stream_rows(config, weights, own, split);
        if (rows != 0) return split.with_stream_rows(rows);
    }
    const Split split = choose_halves(config, weights, own, short_of, false);
    if (split.is_whole_on(0)) return std::nullopt;
    return split;
}

// A candidate's needs are asked of the whole plan for each set of halves, not added up from single layers: scratch, tables and
// the padding of allocations are not sums. A set with a part that the device cannot allocate at once needs "infinitely" much.
Split Placing::choose_halves(const Config& config, const Weights& weights, const ForwardOptions& options, double short_of,
                             bool streams) const {
    const std::vector<double> shares = asked.device_shares();
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < count(); i++) {
        const uint64_t available = plan_on(i, config, weights, options).available;
        const auto needs = [this, i, &config, &weights, streams, own = options](const HeldHalves& held) mutable {
            own.held = held;
            own.streamed.clear();
            for (uint32_t layer = 0; streams && layer < config.num_hidden_layers; layer++)
                if (held.attention(layer) && !held.feed_forward(layer)) own.streamed.push_back(layer);
            const MemoryPlan plan = plan_on(i, config, weights, own);
            return plan.largest_part <= plan.allocation_limit ? plan.total() : UINT64_MAX;
        };
        candidates.push_back({uint64_t(double(available) * (1 - short_of)), needs, shares.empty() ? 0 : shares[i]});
    }
    return place(config.num_hidden_layers, asked.wishes(), candidates);
}

// Returns whether two layers' feed-forward networks take at most 1 / small_part of each device's memory.
bool Placing::has_room_for_streams(const Config& config, const Weights& weights, const ForwardOptions& options) const {
    std::vector<uint32_t> layers(config.num_hidden_layers);
    std::iota(layers.begin(), layers.end(), 0);
    for (size_t i = 0; i < count(); i++) {
        const uint64_t bytes =
            gpu::WeightStream::device_bytes(weights, layers, gpu::tuning_for(capabilities(i)).weight_interleave);
        if (bytes > plan_on(i, config, weights, options).available / small_part) return false;
    }
    return true;
}

// Returns whether the CPU has feed-forward networks whose attention is on a device.
static bool has_halves_to_stream(const Split& split) {
    bool any = false;
    for (uint32_t i = 0; i + 1 < split.devices(); i++) any = any || !split.with_stream_rows(1).streamed(i).empty();
    return any;
}

// Returns the rows from which blocks stream weights; 0 if they never do.
uint32_t Placing::stream_rows(const Config& config, const Weights& weights, const ForwardOptions& options,
                              const Split& split) const {
    if (!has_halves_to_stream(split)) return 0;
    if (asked.op_offload_min_batch != 0) return asked.op_offload_min_batch;
    const uint32_t rows = predict_stream_rows(config, weights, split, speeds(options));
    return rows <= slices_of_block * options.batch_size ? rows : 0;
}

std::string Placing::describe_streams(const Config& config, const Weights& weights, const ForwardOptions& options,
                                      const Split& split) const {
    if (!has_halves_to_stream(split)) return {};
    if (split.stream_rows() != 0)
        return fmt::format("in blocks of {} tokens of a prompt or more, the CPU's feed-forward networks run on the devices, with "
                           "weights that are "
                           "uploaded for each block ({})",
                           split.stream_rows(),
                           asked.op_offload_min_batch == 0 ? "predicted to be faster" : "--op-offload-min-batch");
    const ForwardOptions own = with_slices(options);
    std::string why = fmt::format("uploading their weights is not predicted to be faster in blocks of up to {} tokens",
                                  slices_of_block * own.batch_size);
    if (asked.no_op_offload)
        why = "--no-op-offload";
    else if (options.deterministic)
        why = "--deterministic";
    else if (!has_room_for_streams(config, weights, own))
        why = fmt::format("the weights of two of them would take more than 1/{} of a device's memory", small_part);
    return fmt::format("in prompts, too, the CPU's feed-forward networks run on the CPU ({})", why);
}

std::vector<AssumedSpeed> Placing::speeds(const ForwardOptions& options) const {
    std::vector<AssumedSpeed> out;
    for (size_t i = 0; i < count(); i++) out.push_back(speed_of(capabilities(i)));
    out.push_back(speed_of_cpu(options.threads));
    return out;
}

ForwardOptions Placing::options_of(size_t device, const ForwardOptions& options, const Split& split) const {
    ForwardOptions own = with_slices(options);
    own.held = split.held(uint32_t(device));
    own.streamed = split.streamed(uint32_t(device));
    return own;
}

std::vector<PlacedPart> Placing::parts(const Config& config, const Weights& weights, const ForwardOptions& options,
                                       const Split& split) const {
    std::vector<PlacedPart> out;
    const std::vector<AssumedSpeed> assumed = speeds(options);
    for (uint32_t i = 0; i <= count(); i++) {
        const ForwardOptions own = options_of(i, options, split);
        PlacedPart part{i == count() ? "CPU" : capabilities(i).name, {}, assumed[i]};
        if (i < count() && known(capabilities(i)) != nullptr) part.speed_source = "its maker's figure";
        if (own.held.ranges(split.layers()).empty() && !own.held.head())
            part.plan.available = plan_on(i, config, weights, own).available;
        else
            part.plan = plan_on(i, config, weights, own);
        out.push_back(std::move(part));
    }
    return out;
}

// Adds a part to a sum. The sum fits if each part does.
static void add_part(MemoryPlan& sum, const MemoryPlan& part) {
    sum.weights += part.weights;
    sum.kv_cache += part.kv_cache;
    sum.scratch += part.scratch;
    sum.available += part.available;
    sum.mapped += part.mapped;
    sum.parts_fit = sum.parts_fit && part.fits();
    sum.parts_run = sum.parts_run && part.runs();
}

MemoryPlan Placing::plan(const Config& config, const Weights& weights, const ForwardOptions& options, const Split& split) const {
    MemoryPlan sum;
    for (const PlacedPart& part : parts(config, weights, options, split)) add_part(sum, part.plan);
    return sum;
}

MemoryPlan Placing::plan_of_ranks(const Config& config, const Weights& weights, const ForwardOptions& options) const {
    MemoryPlan sum;
    for (const MemoryPlan& part : ranks->plans(rank_model(config, weights, options), options, rank_split(weights)))
        add_part(sum, part);
    return sum;
}

// Writes the lines that say where the model is.
static void write_lines(const Placing& placing, const Split& split, const std::string& streams) {
    write_error(fmt::format("tq-run: {}\n", describe(placing, split)));
    if (!streams.empty()) write_error(fmt::format("tq-run: {}\n", streams));
}

// Loads the model as it is placed with `short_of`, or with more if that does not fit.
// Loading is the only proof that memory is there, since other programs and the driver itself use it. So OutOfMemory is an answer
// here and not an error, until there is no memory left to give up (short_of reaches 1) or --fit off forbids another placement.
// What was loaded is released before the next try, as the stages are destroyed with the exception.
std::unique_ptr<Forward> Placing::load(const Config& config, const Weights& weights, const ForwardOptions& options,
                                       const LoadProgress& on_load, double& short_of) const {
    for (;; short_of += short_step) {
        const std::optional<Split> split = choose(config, weights, options, short_of);
        if (split) write_lines(*this, *split, describe_streams(config, weights, options, *split));
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
            if (devices.empty() || asked.fit == "off" || short_of + short_step >= 1) throw;
            write_error(fmt::format("tq-run: {}: less of the model is placed there\n", error.what()));
        }
    }
}

Split Placing::rank_split(const Weights& weights) const {
    return split_of_ranks(divide_layers(weights, asked.rank_layers(), ranks->facts()));
}

RankModel Placing::rank_model(const Config& config, const Weights& weights, const ForwardOptions& own) const {
    const auto with_own = [&own](ForwardOptions options) {
        options.threads = own.threads;
        options.memory_bytes = own.memory_bytes;
        return options;
    };
    const auto make = [this, &config, &weights, with_own](const Cache& cache, const ForwardOptions& options) {
        return devices.empty() ? make_cpu_stage(config, weights, cache, with_own(options))
                               : make_gpu_stage(*devices[0], config, weights, cache, with_own(options));
    };
    const auto plan = [this, &config, &weights, with_own](const ForwardOptions& options) {
        return plan_on(0, config, weights, with_own(options)); // without devices this is the CPU
    };
    return {config, make, plan};
}

std::unique_ptr<Forward> Placing::open_on_ranks(const Config& config, const Weights& weights, const ForwardOptions& options,
                                                const LoadProgress& on_load) const {
    const Split split = rank_split(weights);
    ForwardOptions all = options;
    if (all.batch_size == 0) all.batch_size = ranks->batch_size();
    for (uint32_t rank = 0; rank < ranks->size(); rank++)
        write_error(fmt::format("tq-run: {}: {}\n", ranks->name(rank), describe_part(split, rank)));
    return ranks->make_forward(config, weights, all, split, [&](const Cache& cache, const ForwardOptions& part) {
        return devices.empty() ? make_cpu_stage(config, weights, cache, part, on_load)
                               : make_gpu_stage(*devices[0], config, weights, cache, part, on_load);
    });
}

// Two things may fail later, and both make the model anew while its cache is kept by make_placed_forward: memory that runs short
// in a pass (with_less: the same devices, less on them), and a device that is lost (load_anew: reopen() gives the devices that
// are left, until one loads). `now` is shared by both, so that after a loss the share that stays free starts from 0 again, as the
// devices may be others.
std::unique_ptr<Forward> Placing::open(const Config& config, const Weights& weights, const ForwardOptions& options,
                                       const LoadProgress& on_load, const std::function<Placing()>& reopen) const {
    if (ranks) return open_on_ranks(config, weights, options, on_load);
    struct Now {
        Placing placing;
        double short_of = 0;
    };
    const auto now = std::make_shared<Now>(Now{*this});
    const auto load_now = [now, &config, &weights, options](const LoadProgress& progress) {
        return now->placing.load(config, weights, options, progress, now->short_of);
    };
    if (devices.empty() || asked.fit == "off") return load_now(on_load);
    const auto load_anew = [now, load_now, reopen](const LoadProgress& progress) {
        for (;;) {
            *now = {reopen()};
            try {
                return load_now(progress);
            } catch (const DeviceLost&) { // again: then the next device is tried
            }
        }
    };
    std::unique_ptr<Forward> model;
    try {
        model = load_now(on_load);
    } catch (const DeviceLost&) {
        if (!reopen) throw;
    }
    if (!model) model = load_anew(on_load);
    const auto with_less = [now, load_now](const OutOfMemory& error) {
        write_error(fmt::format("\ntq-run: {}: the model is placed anew, with less there, and what was computed is kept\n",
                                error.what()));
        now->short_of += short_step;
        if (now->short_of >= 1) throw error;
        return load_now({});
    };
    Remake remake{with_less, {}};
    if (reopen) remake.on_new_device = [load_anew](const DeviceLost&) { return load_anew({}); };
    return make_placed_forward(std::move(model), std::move(remake));
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
