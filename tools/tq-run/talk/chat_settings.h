// What /set changes in a conversation, by the names of the flags; and what of it a saved conversation holds.
#pragma once
#include "model/sampling/sampler.h"
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tq {

struct ChatSettings {
    SamplerOptions sampling;
    uint32_t max_tokens = UINT32_MAX; // of an answer; UINT32_MAX: until it ends

    // Throws Error where there is no such setting, or the value is none that it can have; nothing is changed then.
    void set(std::string_view name, std::string_view value);

    std::string list() const; // a line for each
    nlohmann::ordered_json to_json() const;
    static ChatSettings from_json(const nlohmann::json& json, const ChatSettings& others); // throws Error
    static std::vector<std::string> names();
};

} // namespace tq
