// Chooses the device that a model runs on.
#pragma once
#include "tools/tq-run/engine/proof.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// The choice if no device was named and there is no GPU: the processor itself, or, for commands that are about Vulkan devices, a
// software Vulkan driver.
enum class WithoutGpu { cpu, software };

// Returns the Vulkan device that `selector` names (an index, Vulkan0, or a part of its name); nullopt for the CPU (cpu, none). If
// it is empty: a GPU, or else the choice of `otherwise`, with a line on standard error if that is the CPU. Also nullopt if this
// machine's drivers crash. Opens no device. Throws WrongDevice with a list of the devices if none matches; Error.
std::optional<ChosenDevice> find_device(const std::string& selector, WithoutGpu otherwise = WithoutGpu::cpu);

// Returns the names in a list like "0,1" or "0/1". Throws Error if one of several is empty.
std::vector<std::string> device_names(const std::string& selectors);

// Returns the devices of such a list ("0,1") in its order, each found by find_device(). The CPU is left out, since it takes
// what fits no device.
std::vector<ChosenDevice> find_devices(const std::string& selectors, WithoutGpu otherwise = WithoutGpu::cpu);

// Opens the device that find_device() finds, as open_tried() does; nullptr for the CPU.
std::unique_ptr<Device> choose_device(const std::string& selector, WithoutGpu otherwise = WithoutGpu::cpu);

// Throws Error if not all devices that `selectors` names were found, or not all of them are open. For measurements: results of
// other devices would be taken for results of the requested ones.
void require_chosen(const std::string& selectors, const std::vector<ChosenDevice>& found, size_t open);

// Returns which of device_names() are the CPU ("cpu", "none").
std::vector<bool> cpu_among(const std::string& selectors);

// Whether find_device() would return the CPU.
bool chooses_cpu(const std::string& selector);

} // namespace tq
