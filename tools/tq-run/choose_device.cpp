#include "tools/tq-run/choose_device.h"
#include "base/error.h"
#include "base/printable.h"
#include "runtime/device_profile.h"
#include "tools/tq-run/console.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

bool names_cpu(const std::string& name) { return name == "cpu" || name == "none"; }

bool has_gpu() try {
    return std::ranges::any_of(list_devices(),
                               [](const Capabilities& c) { return c.type != DeviceType::cpu && c.unusable.empty(); });
} catch (const Error&) { // no loader, or no driver
    return false;
}

// Opens a GPU; nullptr, after a message, where there is none.
std::unique_ptr<Device> find_gpu() {
    find_device_profile(); // a wrong TQ_DEVICE_PROFILE is the user's error; a missing device is not
    std::string software;
    try {
        auto best = std::make_unique<Device>();
        if (best->capabilities().type != DeviceType::cpu) return best;
        const std::string& name = best->capabilities().name;
        software = fmt::format("; --device {} runs the Vulkan path", printable(name.substr(0, name.find(' '))));
    } catch (const Error&) {
        if (has_gpu()) throw; // which should have been opened
    }
    static bool said = false; // bench may ask for each of several models
    if (!std::exchange(said, true)) write_error(fmt::format("tq-run: no GPU was found, so this runs on the CPU{}\n", software));
    return nullptr;
}

} // namespace

std::unique_ptr<Device> choose_device(const std::string& selector, WithoutGpu otherwise) {
    const std::string name = lowercase(selector);
    if (names_cpu(name)) return nullptr;
    if (name.empty() && otherwise == WithoutGpu::cpu) return find_gpu();
    return std::make_unique<Device>(selector);
}

std::vector<std::unique_ptr<Device>> choose_devices(const std::string& selectors, WithoutGpu otherwise) {
    std::vector<std::unique_ptr<Device>> devices;
    for (size_t begin = 0, end; begin <= selectors.size(); begin = end + 1) {
        end = std::min(selectors.find_first_of(",/", begin), selectors.size());
        const std::string selector = selectors.substr(begin, end - begin);
        if (selector.empty() && end - begin != selectors.size())
            fail("--device {} has an empty name: separate devices by one comma", printable(selectors));
        if (auto device = choose_device(selector, otherwise)) devices.push_back(std::move(device));
    }
    if (devices.empty()) devices.push_back(nullptr);
    return devices;
}

bool chooses_cpu(const std::string& selector) { return names_cpu(lowercase(selector)) || (selector.empty() && !has_gpu()); }

} // namespace tq
