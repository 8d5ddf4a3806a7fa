// For tests of answers: the parts that a model's answer has, and what a client reads of a stream.
#pragma once
#include "tools/server/answer_writer.h"
#include <doctest/doctest.h>
#include <map>
#include <string>
#include <vector>

namespace tq::server {

using Kind = AnswerPart::Kind;

inline Event thinks(const std::string& text) { return {0, {Kind::reasoning, text}, {}}; }
inline Event says(const std::string& text) { return {0, {Kind::content, text}, {}}; }
inline Event call_begin(const std::string& name) { return {0, {Kind::call_begin, name}, {}}; }
inline Event arguments(const std::string& text) { return {0, {Kind::arguments, text}, {}}; }
inline Event call_end(bool valid = true, const std::string& text = "") { return {0, {Kind::call_end, text, 0, valid}, {}}; }

// A call of weather("Oslo"), its arguments in two parts.
inline std::vector<Event> weather_call() {
    return {call_begin("weather"), arguments("{\"city\":"), arguments(" \"Oslo\"}"), call_end()};
}

// Ids that count: "msg_1", "msg_2".
inline MakeId counted_ids() {
    return [counts = std::map<std::string, int>()](std::string_view prefix) mutable {
        return std::string(prefix) + std::to_string(++counts[std::string(prefix)]);
    };
}

// The events of a stream. Each must be named as its data's type says.
inline std::vector<Json> read_stream(const std::string& text) {
    std::vector<Json> events;
    size_t begin = 0;
    while (begin < text.size()) {
        const size_t end = text.find("\n\n", begin);
        REQUIRE(end != text.npos);
        const std::string event = text.substr(begin, end - begin);
        begin = end + 2;
        if (event.starts_with(":")) continue;
        const size_t line = event.find('\n');
        REQUIRE(event.starts_with("event: "));
        REQUIRE(event.compare(line + 1, 6, "data: ") == 0);
        events.push_back(Json::parse(event.substr(line + 7)));
        CHECK(events.back().at("type") == event.substr(7, line - 7));
    }
    return events;
}

inline std::vector<std::string> types(const std::vector<Json>& events) {
    std::vector<std::string> types;
    for (const Json& event : events) types.push_back(event.at("type"));
    return types;
}

} // namespace tq::server
