// Text of the environment for people and reports, which others read: without passwords and keys.
#pragma once
#include <string>
#include <string_view>

namespace tq {

// Returns the value of an environment variable with "***" in place of secrets: all of it if the variable's name has KEY, TOKEN,
// SECRET, PASSWORD, PASSWD or CREDENTIAL in it, in any case; else the user and password of each address
// (scheme://USER:PASSWORD@host). An empty value stays.
std::string redacted(std::string_view name, std::string_view value);

} // namespace tq
