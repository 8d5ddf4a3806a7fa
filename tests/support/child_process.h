// Runs a program to its end and collects its output.
#pragma once
#include <string>
#include <vector>

namespace tq::test {

struct Finished {
    int status = 0; // 128 + n after signal n
    std::string output, error;
};

struct Command {
    std::vector<std::string> arguments; // the program first
    std::string input;
    std::vector<std::string> environment; // NAME=value
};

Finished run(const Command& command);

// tq-run itself.
Finished tq_run(std::vector<std::string> arguments, std::string input = {}, std::vector<std::string> environment = {});

// `shell` is a command line for sh in which $out is a file (its output) and "$@" the command. POSIX only.
Finished run_in_shell(const Command& command, const std::string& shell);

} // namespace tq::test
