// From --device to a device that is not open yet. Order of the questions: is it the CPU by name; did the drivers survive being
// listed by a child (survey_drivers); if nothing was named, is there a GPU. A software driver is chosen only if it was named or
// if the command is about Vulkan devices (WithoutGpu::software), because our own CPU kernels are faster. The index in
// ChosenDevice holds as long as its `vulkan` does: it keeps the instance whose list was counted.
#include "tools/tq-run/engine/choose_device.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "runtime/device.h"
#include "runtime/device_profile.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/engine/drivers.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

bool names_cpu(const std::string& name) { return name == "cpu" || name == "none"; }

bool is_gpu(const Capabilities& device) { return device.type != DeviceType::cpu && device.unusable.empty(); }

// A GPU; nothing, after a message, if there is none.
std::optional<ChosenDevice> find_gpu() {
    find_device_profile(); // a wrong TQ_DEVICE_PROFILE is the user's error; a missing device is not
    std::string software;
    try {
        auto vulkan = hold_vulkan();
        const std::vector<Capabilities> all = list_devices();
        const size_t best = find_device(all, "");
        if (is_gpu(all[best])) return ChosenDevice{all[best], std::to_string(best), std::move(vulkan)};
        const std::string& name = all[best].name;
        software = fmt::format("; --device {} runs the Vulkan path", printable(name.substr(0, name.find(' '))));
    } catch (const Error&) { // no loader, no driver, or no usable device
        software.clear();
    }
    static bool said = false; // bench may ask for each of several models
    if (!std::exchange(said, true)) write_error(fmt::format("tq-run: no GPU was found, so this runs on the CPU{}\n", software));
    return std::nullopt;
}

} // namespace

std::optional<ChosenDevice> find_device(const std::string& selector, WithoutGpu otherwise) {
    const std::string name = lowercase(selector);
    if (names_cpu(name) || !survey_drivers()) return std::nullopt;
    if (name.empty() && otherwise == WithoutGpu::cpu) return find_gpu();
    auto vulkan = hold_vulkan();
    const std::vector<Capabilities> all = list_devices();
    const size_t found = find_device(all, selector);
    return ChosenDevice{all[found], std::to_string(found), std::move(vulkan)};
}

std::vector<std::string> device_names(const std::string& selectors) {
    std::vector<std::string> names = split(selectors, ",/");
    if (!selectors.empty() && std::ranges::find(names, "") != names.end())
        fail("--device {} has an empty name: separate devices by one comma", printable(selectors));
    return names;
}

std::vector<ChosenDevice> find_devices(const std::string& selectors, WithoutGpu otherwise) {
    std::vector<ChosenDevice> devices;
    for (const std::string& name : device_names(selectors))
        if (auto device = find_device(name, otherwise)) devices.push_back(std::move(*device));
    return devices;
}

std::vector<bool> cpu_among(const std::string& selectors) {
    std::vector<bool> out;
    for (const std::string& name : device_names(selectors)) out.push_back(names_cpu(lowercase(name)));
    return out;
}

void require_chosen(const std::string& selectors, const std::vector<ChosenDevice>& found, size_t open) {
    const auto asked = size_t(std::ranges::count(cpu_among(selectors), false));
    if (found.size() == open && (found.size() == asked || selectors.empty())) return;
    const std::string what = selectors.empty() ? printable(found[0].capabilities.name) : "--device " + printable(selectors, 80);
    fail("nothing is measured, since {} would run on another device: --device cpu measures the CPU, and tq-run doctor tells why "
         "a device is not used",
         what);
}

std::unique_ptr<Device> choose_device(const std::string& selector, WithoutGpu otherwise) {
    const auto found = find_device(selector, otherwise);
    return found ? open_tried(*found) : nullptr;
}

bool chooses_cpu(const std::string& selector) {
    if (names_cpu(lowercase(selector)) || !survey_drivers()) return true;
    try {
        return selector.empty() && std::ranges::none_of(list_devices(), is_gpu);
    } catch (const Error&) { // no loader, or no driver
        return true;
    }
}

} // namespace tq
