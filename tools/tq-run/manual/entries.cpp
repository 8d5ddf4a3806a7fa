#include "tools/tq-run/manual/entries.h"
#include "tools/tq-run/cli/arguments.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

namespace tq::manual {
namespace {

std::vector<std::string> words(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
}

// llama.cpp's names are known by other_names(): short ones are shown as names, long ones are accepted but not listed.
Flag entry(CLI::Option& option) {
    Flag flag;
    for (const OtherName& other : other_names())
        if (option.check_lname(std::string(other.flag.substr(2))))
            (other.name.starts_with("--") ? flag.also : flag.names).emplace_back(other.name);
    for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
    if (option.get_items_expected_max() > 0 || option.get_positional()) flag.value = option.get_option_text();
    flag.values = words(known_values(option));
    flag.help = option.get_description();
    flag.group = option.get_group();
    return flag;
}

} // namespace

bool Flag::known_as(const std::string& name) const {
    return std::ranges::find(names, name) != names.end() || std::ranges::find(also, name) != also.end();
}

Command entries(CLI::App& program) {
    Command command{.name = program.get_name(),
                    .help = program.get_description(),
                    .footer = program.get_footer(),
                    .flags = {},
                    .positionals = {},
                    .commands = {}};
    for (CLI::Option* option : program.get_options([](const CLI::Option* one) { return !one->get_group().empty(); }))
        (option->get_positional() ? command.positionals : command.flags).push_back(entry(*option));
    for (CLI::App* each : program.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
        command.commands.push_back(entries(*each));
    return command;
}

} // namespace tq::manual
