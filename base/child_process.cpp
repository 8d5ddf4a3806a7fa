#include "base/child_process.h"

namespace tq {

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
