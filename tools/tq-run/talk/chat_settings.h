// The settings of a conversation by the names of the flags: the ones that /set changes, and the ones that a saved conversation
// holds.
#pragma once
#include "model/engine/sampling/sampler.h"
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tq {

struct ChatSettings {
    SamplerOptions sampling;
    uint32_t max_tokens = UINT32_MAX; // of an answer; UINT32_MAX: until it ends

    // Throws Error if there is no such setting, or it cannot have the value; nothing is changed then.
    void set(std::string_view name, std::string_view value);

    std::string list() const; // a line for each
    nlohmann::ordered_json to_json() const;
    static ChatSettings from_json(const nlohmann::json& json, const ChatSettings& others); // throws Error
    static std::vector<std::string> names();
};

} // namespace tq
