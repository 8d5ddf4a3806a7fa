// The hub's options from the environment, by the names that Hugging Face's and llama.cpp's tools read, in their order of
// precedence. The first variable that is set and not empty is the path of the cache.
#include "base/path_text.h"
#include "base/printable.h"
#include "model/hub/hub.h"
#include <algorithm>
#include <array>
#include <cctype>

namespace tq {
namespace {

std::string text(const Environment& environment, const char* name) { return environment(name).value_or(""); }

std::filesystem::path cache_directory(const Environment& environment) {
#ifdef _WIN32
    constexpr const char* home = "USERPROFILE";
#else
    constexpr const char* home = "HOME";
#endif
    struct Place {
        const char *variable, *below;
    };
    constexpr std::array places{Place{"LLAMA_CACHE", ""},
                                Place{"HF_HUB_CACHE", ""},
                                Place{"HUGGINGFACE_HUB_CACHE", ""},
                                Place{"HF_HOME", "hub"},
                                Place{"XDG_CACHE_HOME", "huggingface/hub"},
                                Place{home, ".cache/huggingface/hub"}};
    for (const Place& place : places)
        if (const std::string value = text(environment, place.variable); !value.empty())
            return (utf8_path(value) / place.below).lexically_normal();
    fail("there is no place for downloaded models: set HF_HOME (or {}) to a directory", home);
}

bool is_true(const std::string& given) {
    const std::string value = lowercase(given);
    return value == "1" || value == "true" || value == "yes" || value == "on";
}

} // namespace

HubOptions hub_options(const Environment& environment) {
    HubOptions options;
    for (const char* name : {"HF_ENDPOINT", "MODEL_ENDPOINT"}) // the last wins, as in llama.cpp
        if (const std::string value = text(environment, name); !value.empty()) options.endpoint = value;
    options.token = text(environment, "HF_TOKEN");
    options.offline = is_true(text(environment, "HF_HUB_OFFLINE"));
    options.cache = cache_directory(environment);
    return options;
}

} // namespace tq
