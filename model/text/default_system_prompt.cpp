// The system prompt that a template has for conversations without one. No template is executed: two forms are read that real
// templates have. The first is a literal of Jinja that is a whole system turn. The second is {% set NAME = 'literal' %} with a
// turn that is written from NAME. Any other literal for a variable of such a name is told as a note.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/text/chat_template.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

constexpr std::string_view system_begin = "<|im_start|>system", system_end = "<|im_end|>";
constexpr size_t max_prompt = 4096, max_name = 256; // bytes

// Returns what a literal in these quotes means ('\0': plain text of the template); nothing if it ends before the text does.
std::optional<std::string> unescaped(std::string_view text, char quote) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool is_escape = quote != '\0' && text[i] == '\\' && i + 1 < text.size();
        if (!is_escape && quote != '\0' && text[i] == quote) return std::nullopt;
        if (is_escape) ++i;
        out += is_escape && text[i] == 'n' ? '\n' : text[i];
    }
    return out;
}

std::string literal_turn(std::string_view text) {
    for (size_t at = text.find(system_begin); at != text.npos; at = text.find(system_begin, at + 1)) {
        const char before = at > 0 ? text[at - 1] : '\0', quote = before == '\'' || before == '"' ? before : '\0';
        std::string_view turn = text.substr(at + system_begin.size());
        const size_t newline = quote != '\0' && turn.starts_with("\\n") ? 2 : turn.starts_with('\n') ? 1 : 0;
        turn = turn.substr(std::min(newline, turn.size()), max_prompt + system_end.size()); // so that a long text costs little
        if (newline == 0 || turn.find(system_end) == turn.npos) continue;
        turn = turn.substr(0, turn.find(system_end));
        if (turn.size() >= max_prompt || turn.find("{{") != turn.npos || turn.find("{%") != turn.npos) continue;
        if (const auto prompt = unescaped(turn, quote); prompt && !prompt->empty()) return *prompt;
    }
    return {};
}

std::string_view skip_spaces(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == text.npos ? std::string_view() : text.substr(begin);
}

struct Assignment {
    std::string_view name;
    std::string value;
};

// Reads "NAME = 'literal' %}", which follows {% set; nothing if it is something else, or the literal is empty.
std::optional<Assignment> read_assignment(std::string_view text) {
    text = skip_spaces(text);
    const std::string_view name = text.substr(0, text.find_first_of(" \t\r\n="));
    text = skip_spaces(text.substr(name.size()));
    if (name.size() > max_name || !text.starts_with('=')) return std::nullopt;
    text = skip_spaces(text.substr(1));
    if (text.empty() || (text[0] != '\'' && text[0] != '"')) return std::nullopt;
    size_t end = 1;
    while (end < text.size() && text[end] != text[0]) end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size() || end == 1 || end > max_prompt) return std::nullopt;
    const std::string_view rest = skip_spaces(text.substr(end + 1));
    if (!rest.starts_with("%}") && !rest.starts_with("-%}")) return std::nullopt;
    auto value = unescaped(text.substr(1, end - 1), text[0]);
    return value ? std::optional(Assignment{name, std::move(*value)}) : std::nullopt;
}

// Returns the literals that variables with "system" in their names get.
std::vector<Assignment> assignments(std::string_view text) {
    std::vector<Assignment> all;
    for (size_t at = text.find("{%"); at != text.npos; at = text.find("{%", at + 2)) {
        std::string_view statement = text.substr(at + 2);
        if (statement.starts_with('-')) statement.remove_prefix(1);
        statement = skip_spaces(statement);
        if (!statement.starts_with("set ")) continue;
        auto one = read_assignment(statement.substr(4));
        if (one && one->name.find("system") != one->name.npos) all.push_back(std::move(*one));
    }
    return all;
}

// Whether a system turn is the variable: '<|im_start|>system\n' + NAME, or <|im_start|>system, a line end and {{ NAME }}.
bool writes_turn_of(std::string_view text, std::string_view name) {
    for (size_t at = text.find(system_begin); at != text.npos; at = text.find(system_begin, at + 1)) {
        const std::string_view rest = text.substr(at + system_begin.size());
        size_t begin = 0;
        while (begin < rest.size() && std::string_view("'\"+~{}- \t\r\n\\").find(rest[begin]) != std::string_view::npos)
            begin += rest[begin] == '\\' ? 2 : 1; // an escape
        if (begin == 0 || begin >= rest.size() || !rest.substr(begin).starts_with(name)) continue;
        const std::string_view after = rest.substr(begin + name.size());
        if (!after.empty() && std::string_view(" +~}-|").find(after[0]) != std::string_view::npos) return true;
    }
    return false;
}

} // namespace

std::string default_system_prompt(const ModelFile& file) {
    const std::string_view text = file.text("tokenizer.chat_template", "");
    if (std::string prompt = literal_turn(text); !prompt.empty()) return prompt;
    const std::vector<Assignment> all = assignments(text);
    return all.size() == 1 && writes_turn_of(text, all[0].name) ? all[0].value : std::string();
}

std::optional<std::string> system_prompt_note(const ModelFile& file) {
    const std::vector<Assignment> all = assignments(file.text("tokenizer.chat_template", ""));
    if (all.empty() || !default_system_prompt(file).empty()) return std::nullopt;
    return fmt::format("{} sets {} to a text that is left out, because how the template uses it is not understood: give it with "
                       "--system-prompt if it is the model's system prompt",
                       file.label("tokenizer.chat_template"), printable(all[0].name, 60));
}

} // namespace tq
