// Chooses the device that a model runs on.
#pragma once
#include "tools/tq-run/proof.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// The choice where no device was named and there is no GPU: the processor itself, or a software Vulkan driver on it, for
// commands that are about Vulkan devices.
enum class WithoutGpu { cpu, software };

// The Vulkan device that `selector` names (an index, Vulkan0, or a part of its name); nothing for the CPU (cpu, none). Where it
// is empty: a GPU, or else the choice of `otherwise`, with a line on standard error where that is the CPU. Nothing, too, where
// this machine's drivers crash. Opens no device. Throws WrongDevice with a list of the devices where none matches; Error.
std::optional<ChosenDevice> find_device(const std::string& selector, WithoutGpu otherwise = WithoutGpu::cpu);

// The names in a list such as "0,1" or "0/1". Throws Error where one of several is empty.
std::vector<std::string> device_names(const std::string& selectors);

// The devices that such a list names, in its order, as find_device() finds each; the CPU does not count, since it takes what fits
// no device.
std::vector<ChosenDevice> find_devices(const std::string& selectors, WithoutGpu otherwise = WithoutGpu::cpu);

// Opens the device that find_device() finds, as open_tried() does; nullptr for the CPU.
std::unique_ptr<Device> choose_device(const std::string& selector, WithoutGpu otherwise = WithoutGpu::cpu);

// Throws Error where not all devices that `selectors` names were found, or not all that were found are open: for measurements,
// which on others would be taken for those of the devices that were asked for.
void require_chosen(const std::string& selectors, const std::vector<ChosenDevice>& found, size_t open);

// Which of device_names() are the CPU ("cpu", "none").
std::vector<bool> cpu_among(const std::string& selectors);

// Whether find_device() would return the CPU.
bool chooses_cpu(const std::string& selector);

} // namespace tq
