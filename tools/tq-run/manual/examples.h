// Examples of each command, and what its exit statuses mean: for --help (help_footer) and the man pages.
#pragma once
#include <string>
#include <vector>

namespace tq::manual {

struct Example {
    const char *line, *what; // "tq-run chat", "chat with the small demo model"
};
// Returns the examples of a command, or of the program if `command` is empty. Empty if the command does not exist.
std::vector<Example> examples(const std::string& command);

struct ExitStatus {
    int status;
    std::string meaning;
};
std::vector<ExitStatus> exit_statuses(const std::string& command);

} // namespace tq::manual
