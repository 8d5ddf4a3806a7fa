#include "tools/tq-run/engine_devices.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/gpu/tuning_file.h"
#include "tools/tq-run/console.h"
#include <chrono>

namespace tq {

std::string describe_device(Device& device) {
    const Capabilities& c = device.capabilities();
    const std::string problem = gpu::stored_tuning(c).problem;
    if (!problem.empty()) write_error(fmt::format("tq-run: {}\n", problem));
    return printable(fmt::format("{}, {} {}", c.name, c.driver_name, c.driver_info), 160);
}

std::vector<std::unique_ptr<Device>> open_devices(const std::vector<ChosenDevice>& chosen, const conformance::Subject& subject,
                                                  Console& console, WithoutGpu otherwise) {
    std::vector<std::unique_ptr<Device>> devices;
    for (const ChosenDevice& one : chosen) {
        auto device =
            otherwise == WithoutGpu::software ? std::make_unique<Device>(one.selector) : open_proven(one, subject, console);
        if (device) devices.push_back(std::move(device));
    }
    if (devices.empty()) devices.push_back(nullptr);
    return devices;
}

// Opens the engine's devices as `selector` names them. The model is not on them any more.
static Placing reopen_devices(Engine& engine, const ForwardOptions& options) {
    engine.device = nullptr;
    engine.other_devices.clear();
    Console quiet(ColorMode::off, true);
    auto devices =
        open_devices(find_devices(engine.selector),
                     conformance::subject_of(engine.model.config, engine.model.weights, options.kv), quiet, WithoutGpu::cpu);
    engine.device = std::move(devices[0]);
    devices.erase(devices.begin());
    engine.other_devices = std::move(devices);
    Placing placing{.memory_limit_bytes = engine.memory_limit_bytes, .asked = engine.placement};
    if (!engine.device) return placing;
    placing.devices.push_back(engine.device.get());
    for (const auto& other : engine.other_devices) placing.devices.push_back(other.get());
    for (Device* each : placing.devices) each->memory_limit_bytes = engine.memory_limit_bytes;
    return placing;
}

Placing renew_devices(Engine& engine, const ForwardOptions& options) {
    const bool had_one = engine.device != nullptr;
    Placing placing = reopen_devices(engine, options);
    if (had_one && !engine.device) fail("{} is not there any more", engine.device_name);
    placing.ranks = engine.ranks;
    return placing;
}

// Returns the index of a GPU of another name than the engine's; "cpu" where there is none.
static std::string next_device(const Engine& engine) {
    const std::string lost = engine.device ? engine.device->capabilities().name : "";
    const std::vector<Capabilities> all = list_devices();
    for (size_t i = 0; i < all.size(); i++)
        if (all[i].name != lost && all[i].unusable.empty() && all[i].type != DeviceType::cpu) return std::to_string(i);
    return "cpu";
}

Placing replace_devices(Engine& engine, const ForwardOptions& options) {
    constexpr std::chrono::minutes soon{1};
    const auto now = std::chrono::steady_clock::now();
    const std::string lost = engine.device_name;
    if (engine.lost_at && now - *engine.lost_at < soon) {
        engine.selector = next_device(engine);
        engine.placement = {};
    }
    engine.lost_at = now;
    Placing placing;
    try {
        placing = reopen_devices(engine, options);
    } catch (const Error&) { // it does not come back
        engine.selector = "cpu";
        placing = reopen_devices(engine, options);
    }
    engine.device_name = engine.device ? describe_device(*engine.device) : "CPU";
    write_error(
        fmt::format("\ntq-run: {} stopped answering and lost its memory; {}, and what was lost is computed again\n", lost,
                    engine.device_name == lost ? "it was opened again" : "the model runs on " + engine.device_name + " now"));
    return placing;
}

} // namespace tq
