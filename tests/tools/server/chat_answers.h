// Requests to /v1/chat/completions, and what their answers say.
#pragma once
#include "tests/tools/server/refused.h"
#include "tests/tools/server/scripted_server.h"
#include "tools/server/openai/messages.h"

namespace tq::server {

inline const std::string weather_text = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";

inline std::string refused(ScriptedServer& server, const Json& body) {
    return refused_field([&] { server.post(chat_completions, body.dump()); });
}

inline Json choice(const Json& event) { return event.at("choices").at(0); }

inline std::string joined(const std::vector<Json>& events, const char* name) {
    std::string text;
    for (const Json& event : events)
        if (!event["choices"].empty() && choice(event)["delta"].contains(name)) text += choice(event)["delta"][name];
    return text;
}

} // namespace tq::server
