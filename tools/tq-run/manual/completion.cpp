// Completes a command line for all shells: their scripts (scripts.cpp) call the hidden `tq-run complete WORDS...` and only show
// what it prints, so the rules are here once, and cannot be older than the program. find_place() reads the words up to the last
// as the parser would: which command, whether a flag's value is wanted, whether "--" came. Then the last word is completed as a
// value, as --flag=value, as a command or as a flag.
// One line each: WORD, or WORD and its help behind a tab; ":files" or ":directories" asks the shell for its own completion of
// paths.
#include "tools/tq-run/manual/completion.h"
#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace tq::manual {
namespace {

// The place of the last word, as the words before it determine it.
struct Place {
    const Command* command;
    const Flag* flag = nullptr; // whose value the last word is
    size_t positional = 0;      // how many words without a flag came after the command
    bool flags_ended = false;   // by "--"
    bool asks_for_help = false; // "help COMMAND"
};

const Flag* find_flag(const Command& command, const std::string& name) {
    const auto found = std::ranges::find_if(command.flags, [&](const Flag& flag) { return flag.known_as(name); });
    return found == command.flags.end() ? nullptr : &*found;
}

bool is_optional(const Flag& flag) { return flag.value.starts_with('['); }

// Goes through the words before the last one. A flag that takes a value makes the next word its value; another word is a command
// below the one so far, or a positional; "--" ends the flags.
Place find_place(const Command& program, const std::vector<std::string>& words) {
    Place place{&program};
    for (size_t i = 1; i + 1 < words.size(); i++) {
        const std::string& word = words[i];
        const bool takes_value = std::exchange(place.flag, nullptr) != nullptr;
        if (takes_value || place.flags_ended) continue;
        if (word == "--") {
            place.flags_ended = true;
        } else if (word.starts_with('-')) {
            const Flag* flag = find_flag(*place.command, word);
            place.flag = flag && !flag->value.empty() && !is_optional(*flag) ? flag : nullptr;
        } else if (i == 1 && word == "help") {
            place.asks_for_help = true;
        } else {
            const auto& commands = place.command->commands;
            const auto found = std::ranges::find(commands, word, &Command::name);
            if (found != commands.end())
                place.command = &*found;
            else
                place.positional++;
        }
    }
    return place;
}

// The first sentence's part of a help text, for a column beside the word.
std::string brief(const std::string& help) {
    std::string text = help.substr(0, help.find("; "));
    std::ranges::replace(text, '\t', ' ');
    std::ranges::replace(text, '\n', ' ');
    return text;
}

void add_values(Completions& out, const Flag& flag, const std::string& before, const std::string& begun) {
    for (const std::string& value : flag.values) {
        out.files |= value == "FILE";
        if (value != "FILE" && value.starts_with(begun)) out.candidates.push_back({before + value, ""});
    }
    out.files |= flag.value.starts_with("FILE") || flag.value.starts_with("PATH");
    out.directories |= flag.value.starts_with("DIR");
}

// Offers the name of a flag that fits what was begun; if nothing was, only its long name.
void add_flags(Completions& out, const Command& command, const std::string& begun) {
    for (const Flag& flag : command.flags) {
        const bool is_long = begun.empty() || begun.starts_with("--");
        for (const std::string& name : flag.names) {
            const bool fits = name.starts_with(begun) && (name.starts_with("--") || !is_long);
            if (!fits) continue;
            out.candidates.push_back({name, brief(flag.help)});
            if (is_long) break;
        }
    }
}

} // namespace

Completions complete(const Command& program, const std::vector<std::string>& words) {
    Completions out;
    if (words.size() < 2) return out;
    const std::string& begun = words.back();
    const Place place = find_place(program, words);
    if (place.flag) {
        add_values(out, *place.flag, "", begun);
        return out;
    }
    if (const size_t equals = begun.find('='); begun.starts_with('-') && !place.flags_ended && equals != begun.npos) {
        const Flag* flag = find_flag(*place.command, begun.substr(0, equals));
        if (flag && !flag->value.empty()) add_values(out, *flag, begun.substr(0, equals + 1), begun.substr(equals + 1));
        return out;
    }
    if (!begun.starts_with('-') && !place.flags_ended && place.positional == 0)
        for (const Command& command : place.command->commands)
            if (command.name.starts_with(begun)) out.candidates.push_back({command.name, brief(command.help)});
    if (place.asks_for_help) return out;
    if (!begun.starts_with('-') && place.positional < place.command->positionals.size())
        add_values(out, place.command->positionals[place.positional], "", begun);
    if (!place.flags_ended && (begun.starts_with('-') || out.candidates.empty())) add_flags(out, *place.command, begun);
    return out;
}

std::string lines(const Completions& completions) {
    std::string text;
    for (const auto& [word, help] : completions.candidates)
        text += help.empty() ? word + '\n' : fmt::format("{}\t{}\n", word, help);
    if (completions.files) return text + ":files\n";
    return completions.directories ? text + ":directories\n" : text;
}

} // namespace tq::manual
