// Conversations with their renderings by the models' own templates.
#pragma once
#include "model/text/chat_template.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tq::test {

// The options that a case's input has, by the names that Hugging Face's apply_chat_template passes on.
inline ChatOptions options_of_case(const nlohmann::ordered_json& input, ChatVariant variant) {
    ChatOptions options{.variant = variant, .add_generation_prompt = input.value("add_generation_prompt", false)};
    if (input.contains("enable_thinking")) options.enable_thinking = input.at("enable_thinking").get<bool>();
    if (input.contains("preserve_thinking")) options.preserve_thinking = input.at("preserve_thinking").get<bool>();
    const std::string effort = input.value("reasoning_effort", "xhigh");
    options.effort = effort == "low"      ? ReasoningEffort::low
                     : effort == "medium" ? ReasoningEffort::medium
                                          : ReasoningEffort::xhigh;
    return options;
}

inline std::string rendered_case(const nlohmann::ordered_json& input, const ChatOptions& options) {
    const auto tools = input.contains("tools") ? input.at("tools") : nlohmann::ordered_json();
    return to_text(render_chat(input.at("messages"), tools, options));
}

// A case may have a "template" of its own, one of chat_variant_names.
inline void check_chat_cases(const std::filesystem::path& path, size_t count, ChatVariant variant = ChatVariant::hybrid) {
    const auto cases = nlohmann::ordered_json::parse(std::ifstream(path));
    REQUIRE(cases.size() == count);
    for (const auto& item : cases) {
        CAPTURE(item.at("name").get<std::string>());
        const auto& input = item.at("input");
        const ChatVariant own =
            item.contains("template") ? find_chat_variant(item.at("template").get<std::string>()).value() : variant;
        CAPTURE(int(own));
        CHECK(rendered_case(input, options_of_case(input, own)) == item.at("rendered").get<std::string>());
    }
}

} // namespace tq::test
