// Chooses the device that a model runs on.
#pragma once
#include "runtime/device.h"
#include <memory>
#include <string>
#include <vector>

namespace tq {

// The choice where no device was named and there is no GPU: the processor itself, or a software Vulkan driver on it, for
// commands that are about Vulkan devices.
enum class WithoutGpu { cpu, software };

// The Vulkan device that `selector` names (an index, Vulkan0, or a part of its name); nullptr for the CPU (cpu, none). Where it
// is empty: a GPU, or else the choice of `otherwise`, with a line on standard error where that is the CPU. Throws WrongDevice
// with a list of the devices where none matches; Error.
std::unique_ptr<Device> choose_device(const std::string& selector, WithoutGpu otherwise = WithoutGpu::cpu);

// Those that a list such as "0,1" or "0/1" names, in its order, as choose_device() chooses each; the CPU counts only where it is
// alone, since it takes what fits no device. At least one.
std::vector<std::unique_ptr<Device>> choose_devices(const std::string& selectors, WithoutGpu otherwise = WithoutGpu::cpu);

// Whether choose_device() would return the CPU. Opens no device.
bool chooses_cpu(const std::string& selector);

} // namespace tq
