#include "tools/server/call_arguments.h"
#include "base/error.h"
#include "base/json.h"
#include "tools/server/json_fields.h"

namespace tq::server {

std::optional<Json> read_arguments(const std::string& arguments) {
    try {
        Json input = build_json<Json>(arguments, "arguments", {.max_depth = 128, .repeated_keys = true, .lone_surrogates = true});
        if (input.is_object()) return input;
    } catch (const Error&) {
    }
    return std::nullopt;
}

// Follows strings and brackets, and remembers the last place where a value was at its end: a comma, or a bracket that opened or
// closed. The text up to there, with the brackets that were open there closed, is the longest prefix that has only whole members.
// A character of no JSON ends it, too: {"days": 2, "city": Oslo} has the days.
Json whole_members(const std::string& text) {
    std::string open, closed; // the brackets that are open; what closes the brackets open at `whole`
    size_t whole = 0;
    bool in_string = false;
    const auto mark = [&](size_t end) {
        whole = end;
        closed.assign(open.rbegin(), open.rend());
    };
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\')
            ++i;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            open += c == '{' ? '}' : ']', mark(i + 1);
        else if (!in_string && (c == '}' || c == ']') && !open.empty())
            open.pop_back(), mark(i + 1);
        else if (!in_string && c == ',')
            mark(i);
        else if (!in_string && std::string_view(": \t\r\n0123456789+-.eEtrufalsn").find(c) == std::string_view::npos)
            break;
    }
    return read_arguments(text.substr(0, whole) + closed).value_or(Json::object());
}

std::string custom_input(const std::string& arguments) {
    constexpr size_t max_escape_bytes = 12; // of two surrogates
    for (size_t cut = 0; cut <= std::min(max_escape_bytes, arguments.size()); ++cut)
        for (const char* end : {"", "\"}"}) {
            const Json json = Json::parse(arguments.substr(0, arguments.size() - cut) + end, nullptr, false);
            const Json* input = json.is_object() ? member(json, "input") : nullptr;
            if (input && input->is_string()) return input->get<std::string>();
        }
    return Json::accept(arguments) ? arguments : std::string();
}

} // namespace tq::server
