#include "base/environment.h"
#include <cstdlib>

extern char** environ;

namespace tq {

std::optional<std::string> environment_variable(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::vector<std::string> environment_variables() {
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; entry++) all.emplace_back(*entry);
    return all;
}

void set_environment_variable(const std::string& name, const std::string& value) { ::setenv(name.c_str(), value.c_str(), 1); }

} // namespace tq
