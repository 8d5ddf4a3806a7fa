// A model on a device, ready to run, and its description for people.
#pragma once
#include "model/model.h"
#include "tools/tq-run/cli/arguments.h"
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tq {

class Device;
class Forward;
class RankGroup;
struct ForwardOptions;
struct KeyCalibration;
struct KeyConditioning;
struct LostDevices;

struct Engine {
    explicit Engine(Model model);
    ~Engine();

    Model model;
    std::unique_ptr<Device> device;                     // none on the CPU
    std::string device_name;                            // with its driver
    std::vector<std::unique_ptr<Device>> other_devices; // that share the model
    std::unique_ptr<Forward> forward;
    double load_seconds = 0;   // reading, checking, repacking and uploading of the weights, without pipelines
    uint64_t loaded_bytes = 0; // of the weights; fewer if the CPU leaves them in the file

    // Used to open the devices again after one was lost.
    uint64_t memory_limit_bytes = 0;
    PlacementArguments placement;
    RankGroup* ranks = nullptr;                     // that share the model
    std::shared_ptr<const KeyCalibration> measured; // keys, if the cache is conditioned automatically
    std::unique_ptr<LostDevices> lost;              // so far (engine_devices.h)

    // Returns which ids the sampler must leave out: with `ignore_end` also those that end an answer.
    std::vector<bool> unsampled(bool ignore_end) const;
};

// The parts of a model that speculative decoding needs.
struct Drafting {
    bool on = false; // ForwardOptions::speculative; also if the head is loaded
    // The model's head for multi-token prediction is loaded, and drafts. if_there: only on the CPU, where it has been measured to
    // gain.
    MtpHead head = MtpHead::left_out;
    uint32_t pending = 0; // ForwardOptions::pending, if it has recurrent layers
};

// Loads the model onto the device, showing progress; from here on Ctrl-C sets a flag (base/interrupt.h). Throws Error, after a
// table of the memory if that is too small; UsageError if flags contradict each other; LoadStopped on Ctrl-C.
std::unique_ptr<Engine> start_engine(const ModelArguments& arguments, Console& console, const Drafting& drafting = {});
// Opens the devices again after one was lost, without a device that was lost twice within a minute, and loads the model onto
// them; over ranks the same devices, on all ranks. The forward pass is gone before. Throws Error.
void restart_engine(Engine& engine, const ForwardOptions& options);

// Returns the file to run: the one that `source` names, after its download if it is in a repository; else the demo model.
std::filesystem::path find_model(const ModelSource& source, Console& console);

// The path from $TQ_DEMO_MODEL, or relative to the program: in ../share/tq-run or share/tq-run.
std::filesystem::path find_demo_model();

// A loaded model's fingerprint (model/files/fingerprint.h), with progress if it reads the file. Throws LoadStopped on Ctrl-C.
std::string fingerprint(const Model& model, Console& console);

// Reads the file that --kv-condition names, with progress too (model/files/calibration.h). Throws Error, LoadStopped.
void load_conditioning(KeyConditioning& conditioning, const Model& model, Console& console);

std::string load_description(const Engine& engine); // "604.2 MiB of weights loaded in 0.41 s, 1.5 GB/s; the CPU uses AVX2"
std::string kv_description(const Engine& engine);   // "264 B/token tq4/tq4 (3.88x smaller than f16)"
std::string sampling_description(const SamplerOptions& options);

// Prints the measurements of --profile since the last call on standard error; nothing on the CPU.
void report_profile(Engine& engine);

} // namespace tq
