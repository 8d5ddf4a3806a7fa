// The result of `tq-run bench --tune` for a device: a JSON file beside the pipeline cache, for each device, driver version and
// device profile.
#pragma once
#include "model/gpu/tuning.h"
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace tq::gpu {

struct StoredTuning {
    std::optional<Tuning> tuning;
    std::string problem; // why an existing file is not used: one sentence for people
};

// Returns the stored tuning of the device, if the device can run it and the environment variable TQ_TUNING is not "default".
// Throws Error if that is neither "default" nor "stored".
StoredTuning stored_tuning(const Capabilities& device);

// Returns the stored tuning, else choose_tuning(): the one that a forward pass uses.
Tuning tuning_for(const Capabilities& device);

// Replaces the file atomically. `measured`: the measurements, for people; it is not read back. Throws Error when it cannot be
// written.
void store_tuning(const Capabilities& device, const Tuning& tuning, const nlohmann::ordered_json& measured);

// Throws the Error that store_tuning() would throw now.
void check_storable(const Capabilities& device);

// Removes the file; returns whether there was one. Throws Error when it cannot be removed.
bool forget_tuning(const Capabilities& device);

// Returns the path; empty if there is no cache directory.
std::filesystem::path tuning_path(const Capabilities& device);

} // namespace tq::gpu
