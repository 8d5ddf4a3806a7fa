// Completes the words of a command line. The shells' scripts are short: they ask "tq-run complete WORDS...", which answers from
// the tables that --help is made of.
#pragma once
#include "tools/tq-run/manual/entries.h"
#include <string_view>

namespace tq::manual {

struct Completions {
    struct Candidate {
        std::string word, help;
    };
    std::vector<Candidate> candidates;
    bool files = false, directories = false; // besides: paths, which the shell completes itself
};

// `words` begin with the program; the last one, which may be empty, is completed.
Completions complete(const Command& program, const std::vector<std::string>& words);

// Returns a line for each candidate, "WORD<tab>HELP"; ":files" or ":directories" is the last line if paths are meant.
std::string lines(const Completions& completions);

// The script for bash, zsh or fish; empty for another shell.
std::string_view completion_script(std::string_view shell);

} // namespace tq::manual
