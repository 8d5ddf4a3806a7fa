#include "tools/server/stop_strings.h"
#include <algorithm>
#include <utility>

namespace tq::server {

// The first loop finds the stop string that is complete first (least end, then least beginning). The second finds how long an end
// of the text could still begin one: for each string the longest proper prefix that the text ends with.
std::string StopStrings::push(std::string_view text) {
    if (found_) return {};
    held_ += text;
    size_t begin = held_.size(), end = SIZE_MAX;
    for (const std::string& stop : strings_) {
        const size_t at = held_.find(stop);
        if (at == held_.npos || at + stop.size() > end || (at + stop.size() == end && at >= begin)) continue;
        begin = at, end = at + stop.size();
        found_ = stop;
    }
    if (found_) return std::exchange(held_, {}).substr(0, begin);
    size_t longest = 0;
    for (const std::string& stop : strings_) {
        size_t n = std::min(held_.size(), stop.size() - 1);
        while (n > longest && held_.compare(held_.size() - n, n, stop, 0, n) != 0) --n;
        longest = std::max(longest, n);
    }
    std::string shown = held_.substr(0, held_.size() - longest);
    held_.erase(0, shown.size());
    return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

} // namespace tq::server
