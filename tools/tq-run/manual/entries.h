// The commands and flags of the command line as plain data, for the man pages and for the completion of shells.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tq::manual {

struct Flag {
    std::vector<std::string> names;  // as --help shows them: "-m", "--model"; none of a positional
    std::vector<std::string> also;   // llama.cpp's other spellings, which are not shown
    std::string value;               // what its value is: "PATH"; empty: it takes none. "[NAME]": it may be left out
    std::vector<std::string> values; // values of an enumerated flag; "FILE" among them: or a file
    std::string help, group;
    bool known_as(const std::string& name) const;
};

struct Command {
    std::string name, help, footer;
    std::vector<Flag> flags, positionals;
    std::vector<Command> commands;
};

// Returns the program, without what is hidden.
Command entries(CLI::App& program);

} // namespace tq::manual
