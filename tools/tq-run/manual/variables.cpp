// Left out are variables for tests only (TQ_CONFORMANCE_FAULT, TQ_SYSFS), a variable that `tq-run launch` sets for a client
// (TQ_RUN_API_KEY), and variables that the system or the launcher of an MPI job sets. tests/check_layers compares the table
// with the variables named TQ_* that the sources read.
#include "tools/tq-run/manual/variables.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace tq::manual {
namespace {

constexpr Variable all_variables[] = {
    {"TQ_CACHE_DIR", "directory of what is kept between runs; default: tq-run in XDG_CACHE_HOME, else ~/.cache/tq-run"},
    {"TQ_CACHE_DISK", "maximum of the prefix cache on the disk in MiB, like --cache-disk; 0: none"},
    {"TQ_CACHE_SHARED", "address of the shared prefix cache, like --cache-shared, but not visible in the list of processes"},
    {"TQ_CPU", "avx2, avx-vnni or avx512: the CPU path uses no instructions beyond these"},
    {"TQ_DEMO_MODEL", "file to take for the demo model"},
    {"TQ_DEVICE_PROFILE", "limits devices to the features of a device profile, such as spec-minimum or full-barriers"},
    {"TQ_GPU_TIMEOUT", "seconds that a GPU may take for one piece of work until it is taken for lost; default: 600; 0: any time"},
    {"TQ_PREFILL_FROM", "address of a faster machine that runs prompts, like --prefill-from"},
    {"TQ_PREFILL_KEY", "API key of that machine, like --prefill-key-file"},
    {"TQ_PROVE", "seconds that a driver may take for an answer when a device proves itself; default: 30; 0: none has to"},
    {"TQ_TUNING", "default: a stored tuning of the device is ignored; stored: it is used, as without the variable"},
    {"TQ_VALIDATE", "1: the Vulkan validation layer checks all calls, and its first message ends the program"},
    {"HF_HOME, HF_HUB_CACHE", "directories of downloaded models, as for Hugging Face's own tools"},
    {"LLAMA_CACHE", "directory of downloaded models, as for llama.cpp; counts before those of Hugging Face"},
    {"HF_TOKEN", "access token for downloads, like --hf-token"},
    {"HF_HUB_OFFLINE", "1: only what is already downloaded is used, like --offline"},
    {"HF_ENDPOINT, MODEL_ENDPOINT", "address to download models from, not https://huggingface.co; if both are set, the second"},
    {"XDG_CACHE_HOME, XDG_DATA_HOME", "parent directories of caches and downloaded models, and of the conversations of chat"},
    {"VK_DRIVER_FILES, VK_ADD_DRIVER_FILES", "drivers in place of the installed ones, or beside them, as for the Vulkan loader"},
    {"NO_COLOR", "no colours"},
    {"TERM", "dumb: no colours, and lines are neither edited nor wrapped"},
};

} // namespace

std::span<const Variable> variables() { return all_variables; }

std::string variables_text() {
    size_t width = 0;
    for (const Variable& one : all_variables) width = std::max(width, std::strlen(one.names));
    std::string text = "Variables:";
    for (const Variable& one : all_variables) text += fmt::format("\n  {:<{}}   {}", one.names, width, one.meaning);
    return text;
}

} // namespace tq::manual
