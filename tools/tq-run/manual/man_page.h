// Man pages (roff, macros man), one for the program and one for each command, from the tables that --help is made of.
#pragma once
#include "tools/tq-run/manual/entries.h"

namespace tq::manual {

// The version and the date of the commit, for the header of every page.
struct Edition {
    std::string program = "tq-run", version, date;
};

// The page tq-run(1).
std::string man_page(const Command& program, const Edition& edition);

// The page of one command, such as tq-run-chat(1), with its own commands.
std::string man_page(const Command& program, const Command& command, const Edition& edition);

} // namespace tq::manual
