#include "base/child_process.h"
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

std::optional<std::string> ChildProcess::take_line() {
    const size_t end = unread_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    return line;
}

std::optional<std::string> ChildProcess::read_line(std::chrono::milliseconds timeout) {
    if (auto line = take_line()) return line;
    if (output_ended_) return std::nullopt;
    if (read_more(timeout)) return take_line();
    if (!unread_.empty() && !unread_.ends_with('\n')) unread_ += '\n';
    if (auto line = take_line()) return line;
    output_ended_ = true;
    return std::nullopt;
}

} // namespace tq
