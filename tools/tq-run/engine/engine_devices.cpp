// Opens devices again after one was lost. The model is gone with its memory, so replace_devices() closes all devices, lists the
// machine's devices anew, and opens again what the engine had. A device that was lost twice within a minute, or that gave no
// answer in time, is left out from then on: it would be lost again. If none is left, the next GPU that proves itself is taken,
// and at last the CPU.
// Devices are recognised by DeviceIdentity and not by index or name: indices change when one disappears, and several may have the
// same name. A new device gets a new placement, because what -ngl or -ts said was about others (`same`).
// Over ranks each keeps its own part, so renew_devices() takes the same devices or fails.
#include "tools/tq-run/engine/engine_devices.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/forward.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/cli/console.h"
#include <algorithm>
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
        auto device = otherwise == WithoutGpu::software ? open_tried(one) : open_proven(one, subject, console);
        if (device) devices.push_back(std::move(device));
    }
    if (devices.empty()) devices.push_back(nullptr);
    return devices;
}

namespace {

using Clock = std::chrono::steady_clock;
using Devices = std::vector<std::unique_ptr<Device>>;

constexpr std::chrono::minutes soon{1};

struct Known {
    DeviceIdentity identity;
    Capabilities capabilities;
};
using AllKnown = std::vector<Known>;

bool has(const std::vector<DeviceIdentity>& all, const Known& one) { return std::ranges::count(all, one.identity) != 0; }

// The devices of this machine, whose indices hold meanwhile; none if they cannot be listed.
struct Here {
    std::shared_ptr<const void> vulkan;
    AllKnown devices;

    auto find(const Known& one) const { return std::ranges::find(devices, one.identity, &Known::identity); }
};
Here list_here() {
    try {
        Here here{hold_vulkan(), {}};
        const std::vector<Capabilities> all = list_devices();
        const std::vector<DeviceIdentity> identities = list_identities();
        for (size_t i = 0; i < all.size(); i++) here.devices.push_back({identities[i], all[i]});
        return here;
    } catch (const Error&) {
        return {};
    }
}

// Names devices for people, with the index if there are several of one name.
std::string names(const Here& here, const AllKnown& devices) {
    std::string text;
    for (const Known& one : devices) {
        const Capabilities& c = one.capabilities;
        const auto is_namesake = [&](const Known& other) { return other.capabilities.name == c.name; };
        text += (text.empty() ? "" : " + ") + printable(fmt::format("{}, {} {}", c.name, c.driver_name, c.driver_info), 160);
        if (const auto found = here.find(one);
            found != here.devices.end() && std::ranges::count_if(here.devices, is_namesake) > 1)
            text += fmt::format(" (--device {})", found - here.devices.begin());
    }
    return text.empty() ? "CPU" : text;
}

AllKnown devices_of(const Engine& engine) {
    AllKnown all;
    if (engine.device) all.push_back({identity(*engine.device), engine.device->capabilities()});
    for (const auto& other : engine.other_devices) all.push_back({identity(*other), other->capabilities()});
    return all;
}

void close_devices(Engine& engine) {
    engine.device = nullptr;
    engine.other_devices.clear();
}

// Opens a device if it is still there and proves itself; nullptr if it cannot be opened.
std::unique_ptr<Device> open_again(const Engine& engine, const ForwardOptions& options, const Here& here, const Known& device) {
    const auto found = here.find(device);
    if (found == here.devices.end() || !found->capabilities.unusable.empty()) return nullptr;
    Console quiet(ColorMode::off, true);
    try {
        return open_proven({found->capabilities, std::to_string(found - here.devices.begin())},
                           conformance::subject_of(engine.model.config, engine.model.weights, options.kv), quiet);
    } catch (const Error&) { // it does not come back
        return nullptr;
    }
}

Devices open_again(const Engine& engine, const ForwardOptions& options, const Here& here, const AllKnown& requested) {
    Devices devices;
    for (const Known& one : requested)
        if (auto device = open_again(engine, options, here, one)) devices.push_back(std::move(device));
    return devices;
}

// Opens the first GPU that is neither left out nor one of `tried`.
Devices open_next(const Engine& engine, const ForwardOptions& options, const Here& here, const AllKnown& tried) {
    Devices devices;
    for (const Known& one : here.devices) {
        if (one.capabilities.type == DeviceType::cpu || has(engine.lost->left_out, one)) continue;
        if (std::ranges::count(tried, one.identity, &Known::identity) != 0) continue;
        if (auto device = open_again(engine, options, here, one)) {
            devices.push_back(std::move(device));
            break;
        }
    }
    return devices;
}

Placing give_devices(Engine& engine, Devices devices) {
    Placing placing{.memory_limit_bytes = engine.memory_limit_bytes, .asked = engine.placement};
    for (const auto& each : devices) {
        each->memory_limit_bytes = engine.memory_limit_bytes;
        placing.devices.push_back(each.get());
    }
    if (devices.empty()) return placing;
    engine.device = std::move(devices[0]);
    devices.erase(devices.begin());
    engine.other_devices = std::move(devices);
    return placing;
}

// Returns the engine's devices that were lost; all of them, if none says that it was.
AllKnown lost_devices(const Engine& engine) {
    AllKnown lost;
    const auto add = [&](const Device* device) {
        if (!device || !is_lost(*device)) return;
        if (std::ranges::count(lost, identity(*device), &Known::identity) == 0)
            lost.push_back({identity(*device), device->capabilities()});
    };
    add(engine.device.get());
    for (const auto& other : engine.other_devices) add(other.get());
    return lost.empty() ? devices_of(engine) : lost;
}

bool any_stuck(const Engine& engine) {
    const auto stuck = [](const std::unique_ptr<Device>& device) { return device && is_stuck(*device); };
    return stuck(engine.device) || std::ranges::any_of(engine.other_devices, stuck);
}

// Remembers the losses. Devices that were lost twice within a minute, or gave no answer, are not used any more.
void leave_out(Engine& engine, const AllKnown& lost, bool stuck) {
    const auto now = Clock::now();
    for (const Known& one : lost) {
        const auto before = std::ranges::find(engine.lost->losses, one.identity, &LostDevices::Loss::device);
        const bool again = before != engine.lost->losses.end() && now - before->at < soon;
        if (again || stuck) engine.lost->left_out.push_back(one.identity);
        if (before != engine.lost->losses.end())
            before->at = now;
        else
            engine.lost->losses.push_back({one.identity, now});
    }
}

} // namespace

Placing renew_devices(Engine& engine, const ForwardOptions& options) {
    const AllKnown requested = devices_of(engine);
    close_devices(engine);
    const Here here = list_here();
    Devices devices = open_again(engine, options, here, requested);
    if (devices.size() < requested.size()) fail("{} is not there any more", engine.device_name);
    Placing placing = give_devices(engine, std::move(devices));
    placing.ranks = engine.ranks;
    return placing;
}

// The lost devices are noted first, as only an open device can say that it is lost. Then all devices are closed before any is
// opened. This includes devices that still work: the model is gone from each, and their memory must be free for the new model.
// If none opens again, the search for another leaves out all that the engine had.
Placing replace_devices(Engine& engine, const ForwardOptions& options) {
    const AllKnown before = devices_of(engine), lost = lost_devices(engine);
    const bool stuck = any_stuck(engine);
    leave_out(engine, lost, stuck);
    close_devices(engine);
    const Here here = list_here();
    AllKnown requested = before;
    std::erase_if(requested, [&](const Known& one) { return has(engine.lost->left_out, one); });
    Devices devices = open_again(engine, options, here, requested);
    if (devices.empty()) devices = open_next(engine, options, here, before);
    Placing placing = give_devices(engine, std::move(devices));
    const AllKnown after = devices_of(engine);
    const bool same = std::ranges::equal(before, after, {}, &Known::identity, &Known::identity);
    if (!same) engine.placement = placing.asked = {}; // what was asked was for other devices
    engine.device_name = names(here, after);
    write_error(fmt::format("\ntq-run: {} {}; {}, and what was lost is computed again\n", names(here, lost),
                            stuck ? "gave no answer in time, and is not used any more" : "stopped answering and lost its memory",
                            same ? "it was opened again" : fmt::format("the model runs on {} now", engine.device_name)));
    return placing;
}

} // namespace tq
