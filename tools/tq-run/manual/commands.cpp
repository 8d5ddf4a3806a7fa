// tq-run man, completion and complete: hidden commands, for packages and shells; and environment, a hidden command so that
// `tq-run help environment` prints the table of variables.
// Pages and completion are made of the entries of all other commands (manual::entries), as --help is, so there is no second list
// of flags. With a directory there is a page for each command beside that of the program.
#include "tools/tq-run/commands.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/whole_file.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/manual/completion.h"
#include "tools/tq-run/manual/man_page.h"
#include "tools/tq-run/manual/variables.h"
#include <CLI/CLI.hpp>
#include <algorithm>

namespace tq {
namespace {

struct ManArguments {
    std::string command, directory;
};

struct NoArguments {};

void write_page(const std::filesystem::path& directory, const std::string& name, const std::string& page) {
    const std::filesystem::path path = directory / (name + ".1");
    if (write_file(path, {std::as_bytes(std::span(page))}))
        fail("cannot write {}: is {} a directory with free space?", printable(utf8_text(path)), printable(utf8_text(directory)));
}

int write_man_pages(const manual::Command& program, const ManArguments& arguments) {
    const manual::Edition edition{program.name, TQ_VERSION, build_date()};
    if (!arguments.directory.empty()) {
        const std::filesystem::path directory = utf8_path(arguments.directory);
        write_page(directory, program.name, manual::man_page(program, edition));
        for (const manual::Command& command : program.commands)
            write_page(directory, program.name + "-" + command.name, manual::man_page(program, command, edition));
        return 0;
    }
    if (arguments.command.empty()) {
        write_output(manual::man_page(program, edition));
        return 0;
    }
    const auto found = std::ranges::find(program.commands, arguments.command, &manual::Command::name);
    if (found == program.commands.end())
        throw UsageError(fmt::format("there is no command {} (tq-run --help lists them)", printable(arguments.command)));
    write_output(manual::man_page(program, *found, edition));
    return 0;
}

} // namespace

void add_manual(CLI::App& app, Action& action) {
    ArgumentParser parser(app);
    const auto add = [&](const char* name, const char* help, const auto& fill, auto run) {
        ArgumentParser command = parser.add_command(name, help);
        app.get_subcommand(name)->group(""); // hidden
        const auto given = fill(command);
        command.callback(
            [&app, &action, given, run] { action = [&app, given, run] { return run(manual::entries(app), *given); }; });
    };
    add(
        "man", "Print the man page of tq-run or of a command",
        [](ArgumentParser& command) {
            auto given = std::make_shared<ManArguments>();
            add_option(command, "command", given->command, "[COMMAND]", "the command; default: tq-run itself");
            add_option(command, "--write", given->directory, "DIR", "write all pages into this directory");
            return given;
        },
        write_man_pages);
    add(
        "completion", "Print the completion script of a shell",
        [](ArgumentParser& command) {
            auto given = std::make_shared<std::string>();
            add_option(command, "shell", *given, "SHELL", "the shell").required().one_of("bash zsh fish");
            return given;
        },
        [](const manual::Command&, const std::string& shell) {
            write_output(manual::completion_script(shell));
            return 0;
        });
    add(
        "complete", "Complete a command line",
        [](ArgumentParser& command) {
            auto given = std::make_shared<std::vector<std::string>>();
            add_option(command, "words", *given, "WORDS", "its words, from tq-run to the one that is begun").take_all();
            return given;
        },
        [](const manual::Command& program, const std::vector<std::string>& words) {
            write_output(manual::lines(manual::complete(program, words)));
            return 0;
        });
    add(
        "environment", "Print the environment variables that tq-run reads",
        [](ArgumentParser& command) {
            command.footer(manual::variables_text());
            return std::make_shared<NoArguments>();
        },
        [](const manual::Command&, const NoArguments&) {
            write_output(manual::variables_text() + "\n");
            return 0;
        });
}

} // namespace tq
