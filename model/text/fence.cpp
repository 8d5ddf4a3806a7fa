#include "model/text/fence.h"
#include <algorithm>

namespace tq {

constexpr std::string_view json_fence = "```json", fence_end = "```", fence_spaces = " \t\r\n";

static std::string_view from_first_letter(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(fence_spaces), text.size()));
    return text;
}

bool begins_fence(std::string_view text) { return json_fence.starts_with(from_first_letter(text)); }

std::string_view without_fence(std::string_view text) {
    std::string_view within = from_first_letter(text);
    if (!within.starts_with(fence_end)) return text;
    within.remove_prefix(within.starts_with(json_fence) ? json_fence.size() : fence_end.size());
    within = within.substr(0, within.find_last_not_of(fence_spaces) + 1);
    if (within.ends_with(fence_end)) within.remove_suffix(fence_end.size());
    return within;
}

} // namespace tq
