// Identifies this build of the program.
#pragma once
#include <string>

namespace tq {

// The commit that it was built from, "8b235b5ca", followed by "-dirty" if files differed; "unknown" outside of a repository.
const char* build_commit();

// The day of that commit, "2026-11-25"; empty if it is unknown.
const char* build_date();

// Without the commit: "tq-run 0.1.0 (gcc 12.2.0, release)". A log is continued only by a build with the same description.
std::string release_description();

std::string build_description(); // "tq-run 0.1.0 (8b235b5ca, gcc 12.2.0, release)"

} // namespace tq
