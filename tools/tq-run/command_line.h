// From the words of a command line to what CLI11 shall read: whole flags only, in llama.cpp's spellings too.
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

// "help CMD", "version", --list-devices and llama.cpp's names become ours; what has no effect here is left out. Throws
// UsageError, with the nearest name, for a flag or a command that there is not, and for flags of llama.cpp that would change the
// results.
CommandLine read_command_line(const CLI::App& app, const std::vector<std::string>& words);

// What is left to say of flags without effect: one line; empty where there are none.
std::string describe_without_effect(const CommandLine& line);

} // namespace tq
