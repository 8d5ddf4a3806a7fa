#include "base/environment.h"
#include <algorithm>

namespace tq {

std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
    std::vector<std::string> all = changes;
    for (std::string& variable : environment_variables()) {
        const std::string name = variable.substr(0, variable.find('=', 1) + 1);
        const auto changed = [&](const std::string& change) { return change.starts_with(name); };
        if (std::none_of(changes.begin(), changes.end(), changed)) all.push_back(std::move(variable));
    }
    return all;
}

} // namespace tq
