#include "tests/clients/scripts.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tq::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view by_heart = "Once upon a time there was a small server.";
constexpr std::string_view thought = "<think>\nThe user wants an answer.\n</think>\n\n";
constexpr std::string_view user_turn = "<|im_start|>user\n", result_begin = "<tool_response>\n",
                           result_end = "\n</tool_response>";

// Returns the text between `begin` and `end`, the first after `at`; all the rest if there is no end.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end, size_t at = 0) {
    const size_t found = text.find(begin, at);
    if (found == text.npos) return {};
    const std::string_view rest = text.substr(found + begin.size());
    return rest.substr(0, rest.find(end));
}

// Returns the end of the JSON object that begins at the text's own beginning, or 0 if there is none.
size_t object_length(std::string_view text) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && text[i] == '{')
            depth++;
        else if (!in_string && text[i] == '}' && --depth == 0)
            return i + 1;
        if (depth == 0) return 0;
    }
    return 0;
}

// Writes a call as Qwen3-Coder does: texts as they are, other values as JSON.
std::string coder_call(std::string_view name, const Json& arguments) {
    std::string values;
    for (const auto& [parameter, value] : arguments.items())
        values += fmt::format("<parameter={}>\n{}\n</parameter>\n", parameter,
                              value.is_string() ? value.get<std::string>() : value.dump());
    return fmt::format("<tool_call>\n<function={}>\n{}</function>\n</tool_call>", name, values);
}

std::string hermes_call(std::string_view name, std::string_view arguments) {
    return fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", name, arguments);
}

bool has_tool(std::string_view prompt, const std::string& name) {
    const std::string_view tools = between(prompt, "<tools>", "\n</tools>");
    return tools.find(fmt::format("\"name\": \"{}\"", name)) != tools.npos ||
           tools.find(fmt::format("<name>{}</name>", name)) != tools.npos;
}

// Returns all calls that the message asks for; empty if it asks for none.
std::string calls(std::string_view prompt, std::string_view message, ChatVariant variant) {
    constexpr std::string_view ask = "please call ";
    std::string all;
    for (size_t at = message.find(ask); at != message.npos; at = message.find(ask, at + 1)) {
        const std::string_view rest = message.substr(at + ask.size());
        const size_t space = rest.find(' ');
        if (space == rest.npos) continue;
        const std::string name(rest.substr(0, space));
        const std::string_view arguments = rest.substr(space + 1).substr(0, object_length(rest.substr(space + 1)));
        const Json parsed = Json::parse(arguments, nullptr, false);
        if (!parsed.is_object()) continue;
        if (!has_tool(prompt, name)) return fmt::format("There is no tool {}.", name);
        if (!all.empty()) all += '\n';
        all += has_xml_calls(variant) ? coder_call(name, parsed) : hermes_call(name, arguments);
    }
    return all;
}

std::string count_to(std::string_view number) {
    uint32_t last = 0;
    std::from_chars(number.data(), number.data() + number.size(), last);
    std::string text = "1";
    for (uint32_t i = 2; i <= std::min(last, 100'000u); i++) text += fmt::format(" {}", i);
    return text;
}

std::string answer(std::string_view prompt, ChatVariant variant) {
    size_t turn = prompt.rfind(user_turn);
    const size_t results = turn;
    while (turn != prompt.npos && turn > 0 && prompt.substr(turn + user_turn.size()).starts_with(result_begin))
        turn = prompt.rfind(user_turn, turn - 1);
    if (turn == prompt.npos) return "Hello!";
    if (turn != results) {
        const std::string_view last = between(prompt, user_turn, "<|im_end|>", results);
        return fmt::format("The tool said: {}", between(last, result_begin, result_end, last.rfind(result_begin)));
    }
    const std::string_view message = between(prompt, user_turn, "<|im_end|>", turn);
    if (std::string text = calls(prompt, message, variant); !text.empty()) return text;
    if (const std::string_view to = between(message, "please count to ", "\n"); !to.empty()) return count_to(to);
    if (const std::string_view text = between(message, "please say: ", "\n\n"); !text.empty()) return std::string(text);
    return "Hello!";
}

} // namespace

std::string scripted_answer(std::string_view prompt, ChatVariant variant) {
    const bool thinks = may_think(variant) && !prompt.ends_with("</think>\n\n");
    return fmt::format("{}{}", thinks ? thought : "", answer(prompt, variant));
}

Script client_script(const Model& model) {
    return [&model](std::span<const uint32_t> prompt) {
        const Tokenizer& tokenizer = model.tokenizer;
        if (prompt.empty()) return tokenizer.encode(by_heart);
        return tokenizer.encode(scripted_answer(tokenizer.decode(prompt, false), model.chat));
    };
}

} // namespace tq::test
