// The environment variables that users may set, in one table for `tq-run help environment` and the man page.
#pragma once
#include <span>
#include <string>

namespace tq::manual {

struct Variable {
    const char *names, *meaning; // "HF_ENDPOINT, MODEL_ENDPOINT"
};
std::span<const Variable> variables();

// Returns the table as text for people, without a line end after the last line.
std::string variables_text();

} // namespace tq::manual
