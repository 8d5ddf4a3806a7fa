// Which build of the program this is.
#pragma once
#include <string>

namespace tq {

// The commit that it was built from, "8b235b5ca", with "-dirty" after it where files differed; "unknown" outside of a repository.
const char* build_commit();

// Without the commit: "tq-run 0.1.0 (gcc 12.2.0, release)". What goes on with a log has this in common with what began it.
std::string release_description();

std::string build_description(); // "tq-run 0.1.0 (8b235b5ca, gcc 12.2.0, release)"

} // namespace tq
