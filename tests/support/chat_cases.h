// Conversations with their renderings by the models' own templates.
#pragma once
#include "model/text/chat_template.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tq::test {

inline void check_chat_cases(const std::filesystem::path& path, size_t count, ChatVariant variant = ChatVariant::hybrid) {
    const auto cases = nlohmann::ordered_json::parse(std::ifstream(path));
    REQUIRE(cases.size() == count);
    for (const auto& item : cases) {
        CAPTURE(item.at("name").get<std::string>());
        const auto& input = item.at("input");
        const ChatOptions options{variant, input.value("add_generation_prompt", false), input.value("enable_thinking", true)};
        const auto tools = input.contains("tools") ? input.at("tools") : nlohmann::ordered_json();
        CHECK(to_text(render_chat(input.at("messages"), tools, options)) == item.at("rendered").get<std::string>());
    }
}

} // namespace tq::test
