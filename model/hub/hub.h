// Models from the Hugging Face hub, kept in the cache directory of its own Python library.
#pragma once
#include "base/error.h"
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tq {

struct HubRequest {
    std::string repository; // user/repository[:quant], such as Qwen/Qwen3-4B-GGUF:Q8_0, or the address of its page, or a file's
    std::string file;       // a GGUF file in it, in place of a quant; empty: the one that fits best
};

struct HubProgress {
    std::string_view file;        // that is being downloaded
    uint64_t done = 0, total = 0; // bytes of all files of the model, including those that were already present
    uint64_t received = 0;        // bytes received over the network
};

struct HubOptions {
    std::string endpoint = "https://huggingface.co";  // http:// too, where requested
    std::string token;                                // sent to the endpoint's own host only
    std::filesystem::path cache;                      // holds models--USER--REPOSITORY
    bool offline = false;                             // use only the cache; no network
    std::function<bool(const HubProgress&)> progress; // called often; false stops the download and keeps the received bytes
    std::function<void(const std::string&)> note;     // a message for people; one line without its end
    std::function<void(const std::string&)> status;   // the current activity, such as another attempt; one line
    int retries = 5;                                  // in a row, without progress
    std::chrono::milliseconds retry_delay{1000};      // doubled each time
    std::chrono::seconds connect_timeout{30}, stall_timeout{30};
};

// Thrown when `progress` returned false.
struct DownloadStopped : Error {
    using Error::Error;
};

// Returns an environment variable, or nullptr.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// Returns the options from the environment: MODEL_ENDPOINT or HF_ENDPOINT; HF_TOKEN; HF_HUB_OFFLINE; and the cache: the first
// that is set of LLAMA_CACHE, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub and
// ~/.cache/huggingface/hub. Throws Error if there is no home directory either.
HubOptions hub_options(const Environment& environment);

// Downloads the files that are not yet in the cache and returns the GGUF file (of a split one, the first part, with all parts
// beside it), or the directory of a repository that has safetensors and no GGUF. Every file has the hub's checksum, or is
// absent. Throws Error, with advice; DownloadStopped.
std::filesystem::path fetch_model(const HubRequest& request, const HubOptions& options);

} // namespace tq
