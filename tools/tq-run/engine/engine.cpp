// Loads a model that was set up (setup.cpp). The order of the steps in start_engine():
// 1. A model that cannot run is refused by its plan, with the table of what would help, before any byte is read.
// 2. The Engine takes model and devices. All later steps refer to them.
// 3. From catch_interrupts() on, Ctrl-C stops the load.
// 4. If the cache wants measured keys and no earlier run has kept them, the model is loaded with an exact cache, measured, and
//    freed again: its memory is needed for the next step.
// 5. The weights are loaded. The callback replaces the devices if one is lost, in this load or in any later run.
// restart_engine() follows the loss of a device whose model the caller holds (the server's scheduler). It uses the conditioning
// that was measured before, so that keys are stored as they were.
#include "tools/tq-run/engine/engine.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/stopwatch.h"
#include "model/cpu/instruction_sets.h"
#include "model/engine/sampling/sampler.h"
#include "model/files/calibration.h"
#include "model/files/fingerprint.h"
#include "model/forward.h"
#include "runtime/device.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/engine_conditioning.h"
#include "tools/tq-run/engine/engine_devices.h"
#include "tools/tq-run/engine/memory_table.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>

namespace tq {

Engine::Engine(Model loaded) : model(std::move(loaded)), lost(std::make_unique<LostDevices>()) {}

Engine::~Engine() = default;

std::vector<bool> Engine::unsampled(bool ignore_end) const {
    auto excluded = unsampled_ids(model.tokenizer, model.config.vocab_size);
    for (uint32_t id = 0; ignore_end && id < model.tokenizer.size(); ++id)
        if (model.tokenizer.is_end_of_generation(id)) excluded[id] = true;
    return excluded;
}

static LoadProgress hash_progress(const Model& model, TransferStatus& status) {
    return status.loading(fmt::format("reading {} for its fingerprint", model.name));
}

std::string fingerprint(const Model& model, Console& console) {
    TransferStatus status(console);
    return model_fingerprint(model.config, model.weights, hash_progress(model, status));
}

void load_conditioning(KeyConditioning& conditioning, const Model& model, Console& console) {
    TransferStatus status(console);
    load_conditioning(conditioning, model.config, model.weights, hash_progress(model, status));
}

// Loads the model for that alone, and leaves its devices as they were.
static void measure_keys(Engine& engine, const Placing& placing, ForwardOptions& options, Console& console) {
    if (engine.ranks || !wants_measured_keys(options.kv, engine.model)) return;
    const Model& model = engine.model;
    TransferStatus status(console);
    const LoadProgress on_load = status.loading(fmt::format("loading {} to measure its keys", model.name));
    engine.measured = options.kv.conditioning.calibration =
        measured_keys(model, options, console,
                      [&](const ForwardOptions& exact) { return placing.open(model.config, model.weights, exact, on_load, {}); });
}

std::unique_ptr<Engine> start_engine(const ModelArguments& arguments, Console& console, const Drafting& drafting) {
    return start_engine(set_up(arguments, console, WithoutGpu::cpu, drafting), console);
}

// The Engine owns the model before anything refers to it: the weights lie in its file's mapping, and forward, placing and the
// callbacks keep references to it. So the Engine must not move, and is made on the heap.
std::unique_ptr<Engine> start_engine(Setup setup, Console& console) {
    if (!setup.plan().runs()) {
        write_error(memory_table(setup));
        fail("{} does not fit {}", setup.model.name, memory_name(setup));
    }
    warn_of_reading(setup);
    const Placing placing = setup.placing();
    ForwardOptions options = setup.options;
    auto engine = std::make_unique<Engine>(std::move(setup.model));
    engine->device = std::move(setup.device);
    engine->device_name = std::move(setup.device_name);
    engine->other_devices = std::move(setup.other_devices);
    engine->memory_limit_bytes = setup.memory_limit_bytes;
    engine->placement = setup.placement;
    engine->ranks = setup.ranks;
    catch_interrupts();
    measure_keys(*engine, placing, options, console);
    TransferStatus status(console);
    const Stopwatch stopwatch;
    const auto on_load = [&, show = status.loading(fmt::format("loading {}", engine->model.name))](uint64_t done,
                                                                                                   uint64_t total) {
        engine->loaded_bytes = done;
        engine->load_seconds = stopwatch.seconds();
        return show(done, total);
    };
    engine->forward = placing.open(engine->model.config, engine->model.weights, options, on_load,
                                   [&engine = *engine, options] { return replace_devices(engine, options); });
    return engine;
}

// The old forward goes first: its memory is needed for the new one.
void restart_engine(Engine& engine, const ForwardOptions& given) {
    engine.forward = nullptr; // with what the other ranks have of it
    ForwardOptions options = given;
    if (engine.measured) options.kv.conditioning.calibration = engine.measured;
    engine.forward =
        (engine.ranks ? renew_devices(engine, options) : replace_devices(engine, options))
            .open(
                engine.model.config, engine.model.weights, options, [](uint64_t, uint64_t) { return !interrupted(); },
                [&engine, options] { return replace_devices(engine, options); });
}

std::string load_description(const Engine& engine) {
    const auto bytes = double(engine.loaded_bytes);
    return fmt::format("{:.1f} MiB of weights loaded in {:.2f} s, {:.2f} GB/s; the CPU uses {}", bytes / (1 << 20),
                       engine.load_seconds, bytes * 1e-9 / std::max(engine.load_seconds, 1e-6), cpu::instruction_sets());
}

std::string kv_description(const Engine& engine) {
    const uint64_t bytes = engine.forward->kv_bytes_per_token();
    const uint64_t f16_bytes = kv_bytes_per_token(engine.model.config, KvOptions{KvType::f16, KvType::f16});
    const double ratio = double(f16_bytes) / double(bytes);
    const std::string against = ratio > 1   ? fmt::format(" ({:.2f}x smaller than f16)", ratio)
                                : ratio < 1 ? fmt::format(" ({:.2f}x larger than f16)", 1 / ratio)
                                            : "";
    const uint64_t window = kv_window_bytes(engine.model.config, engine.forward->kv());
    const uint64_t slot = window + engine.model.config.state_bytes(); // whatever the tokens
    const std::string beside = slot == 0 ? "" : fmt::format(" and {:.1f} MiB", double(slot) / (1 << 20));
    return fmt::format("{} B/token{} {}{}", bytes, beside, describe(engine.forward->kv()), against);
}

std::string sampling_description(const SamplerOptions& o) {
    std::string text = o.temperature == 0 || o.top_k == 1
                           ? "greedy"
                           : fmt::format("temperature {}, top-k {}, top-p {}", o.temperature, o.top_k, o.top_p);
    const auto add = [&](bool used, const char* name, auto value) {
        if (used) text += fmt::format(", {} {}", name, value);
    };
    add(o.min_p != 0, "min-p", o.min_p);
    add(o.repeat_penalty != 1, "repeat penalty", o.repeat_penalty);
    add(o.presence_penalty != 0, "presence penalty", o.presence_penalty);
    add(o.frequency_penalty != 0, "frequency penalty", o.frequency_penalty);
    add(o.temperature != 0 && o.top_k != 1, "seed", o.seed);
    return text;
}

void report_profile(Engine& engine) {
    const auto report = [](Device& device) {
        write_error(profile_table(device.take_profile()));
        write_error(device.kernels_built().text() + "\n");
    };
    if (!engine.device || !engine.device->profile) return;
    report(*engine.device);
    for (const auto& other : engine.other_devices) report(*other);
}

} // namespace tq
