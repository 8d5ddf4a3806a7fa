// What `tq-run bench --tune` has found for a device: a JSON file beside the pipeline cache, for each device, driver version and
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
    std::string problem; // why a file that is there is not used: one sentence for people
};

// What is stored for the device, if the device can run it and the environment variable TQ_TUNING is not "default". Throws Error
// where that is neither "default" nor "stored".
StoredTuning stored_tuning(const Capabilities& device);

// The stored one, else choose_tuning(): what a forward pass uses.
Tuning tuning_for(const Capabilities& device);

// Replaces the file in one step. `measured`: how it was found, for people; it is not read back. Throws Error when it cannot be
// written.
void store_tuning(const Capabilities& device, const Tuning& tuning, const nlohmann::ordered_json& measured);

// Throws the Error that store_tuning() would now.
void check_storable(const Capabilities& device);

// Removes the file; whether there was one. Throws Error when it stays.
bool forget_tuning(const Capabilities& device);

// Empty where the environment names no place.
std::filesystem::path tuning_path(const Capabilities& device);

} // namespace tq::gpu
