// Files of measured keys, which `tq-run calibrate` writes and --kv-condition reads: safetensors with F32 "scales" and "means"
// [layers][kv_heads][head_dim], whose metadata identifies the model. Untrusted until checked.
#pragma once
#include "model/config.h"
#include "model/files/fingerprint.h"
#include "model/kv/options.h"
#include "model/weights/weights.h"
#include <filesystem>
#include <functional>
#include <string>

namespace tq {

// Limits of scales in these files; a scale of 1 has no effect.
constexpr float min_key_scale = 0x1p-16f, max_key_scale = 0x1p16f;

// The remaining content of the file, for people.
struct CalibrationNote {
    std::string model;
    uint64_t tokens = 0; // tokens of the text
};
std::string calibration_bytes(const KeyCalibration& calibration, const std::string& fingerprint, const CalibrationNote& note);

// Throws an Error that names the file when its fingerprint is another, or it is incomplete, or has values that keys cannot have:
// a scale that is not a number within the limits, a mean beyond the greatest key that the layer's norm allows. `fingerprint` is
// not called for files of another kind or version.
KeyCalibration read_calibration(const std::filesystem::path& path, const Config& config, const Weights& weights,
                                const std::function<std::string()>& fingerprint);

// Throws Error if the conditioning names a file that is not there.
void require_file(const KeyConditioning& conditioning);
// Reads the file that the conditioning names, if it names one. `on_hash`: see fingerprint.h. Throws as read_calibration does.
void load_conditioning(KeyConditioning& conditioning, const Config& config, const Weights& weights,
                       const LoadProgress& on_hash = {});

} // namespace tq
