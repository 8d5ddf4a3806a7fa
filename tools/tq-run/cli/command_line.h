// Converts the words of a command line, also in llama.cpp's spellings, to whole flags, which CLI11 reads.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tq {

struct CommandLine {
    std::vector<std::string> arguments;      // for `app`
    std::vector<std::string> without_effect; // llama.cpp's flags, with their values, that were left out
};

// "help CMD", "version", --list-devices and llama.cpp's names become ours; flags without effect are left out. Throws
// UsageError, with the nearest name, for an unknown flag or command, and for flags of llama.cpp that would change the results.
CommandLine read_command_line(const CLI::App& app, const std::vector<std::string>& words);

// The message about flags without effect: one line; empty if there are none.
std::string describe_without_effect(const CommandLine& line);

} // namespace tq
