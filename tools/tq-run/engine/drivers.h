// The Vulkan drivers of this machine, as files. A driver may crash or hang the process that merely lists its devices, so the
// first to do so is a child.
#pragma once
#include "tools/check/conformance/runner.h"
#include <filesystem>
#include <string>
#include <vector>

namespace tq {

// Returns the manifests of drivers, and of layers that are loaded unasked, that the Vulkan loader finds: in directories, on
// Windows in the registry, where devices that were removed may be left.
std::vector<std::filesystem::path> driver_manifests();
std::vector<std::filesystem::path> layer_manifests();

// Seconds that a child may take for one answer; 0: no child is asked (TQ_PROVE, default 30). Throws Error if that is no
// number.
uint32_t proving_seconds();

// Workers of conformance: `tq-run conformance --worker`, with these flags and variables. Throws Error if this program does not
// know its own path.
conformance::RunnerOptions worker_options(std::vector<std::string> flags, std::vector<std::string> environment = {});

// Returns the command whose files every report of a device that computes wrongly needs.
std::string report_command(const std::string& device);

// Lines that change when what drivers and the loader do may change: variables, and manifests of layers with size and time.
std::string driver_surroundings();

// The variables that make the loader look at these drivers alone.
std::vector<std::string> only_drivers(const std::vector<std::filesystem::path>& manifests);

// Asks a child for the devices of these drivers; of all drivers if `manifests` is empty.
conformance::Listing list_apart(const std::vector<std::filesystem::path>& manifests);

// Must be called before this process calls a driver. If the drivers are new, a child lists their devices; drivers that it does
// not survive are left out of this process, and a line on standard error says so. Returns false if none is left. Does nothing if
// proving_seconds() is 0.
bool survey_drivers();

} // namespace tq
