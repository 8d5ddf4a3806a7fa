#include "tools/server/call_arguments.h"
#include "base/error.h"
#include "base/json.h"

namespace tq::server {

std::optional<Json> read_arguments(const std::string& arguments) {
    try {
        Json input = build_json<Json>(arguments, "arguments", {.max_depth = 128, .repeated_keys = true, .lone_surrogates = true});
        if (input.is_object()) return input;
    } catch (const Error&) {
    }
    return std::nullopt;
}

Json whole_members(const std::string& text) {
    std::string open, closed; // the brackets that are open; what closes those at `whole`
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
    }
    return read_arguments(text.substr(0, whole) + closed).value_or(Json::object());
}

} // namespace tq::server
