#include "model/prefix/state_record.h"
#include "base/error.h"
#include <algorithm>
#include <array>
#include <cstring>

namespace tq {

using Numbers = std::array<uint32_t, 2>; // tokens, and those of the window

StateLayout::StateLayout(const Cache& cache)
    : window(window_layout(cache.page_layout())), window_tokens(cache.shape().window_tokens), state_bytes(cache.state_bytes()) {}

uint64_t StateLayout::max_bytes() const {
    const uint64_t max = window_tokens == 0 ? 0 : window.bytes(kept_window_tokens(window_tokens));
    return sizeof(Numbers) + max + state_bytes;
}

std::vector<std::byte> state_content(const SavedSlot& saved) {
    const Numbers numbers{saved.tokens, saved.window_tokens};
    std::vector<std::byte> content(sizeof numbers);
    std::memcpy(content.data(), numbers.data(), sizeof numbers);
    content.reserve(sizeof numbers + saved.bytes());
    content.insert(content.end(), saved.window.begin(), saved.window.end());
    content.insert(content.end(), saved.state.begin(), saved.state.end());
    return content;
}

SavedSlot read_state(std::span<const std::byte> content, uint32_t tokens, const StateLayout& layout) {
    Numbers numbers{};
    if (content.size() < sizeof numbers) fail("{} bytes of a state", content.size());
    std::memcpy(numbers.data(), content.data(), sizeof numbers);
    const auto [all, in_window] = numbers;
    if (all != tokens) fail("it is the state after {} tokens instead of {}", all, tokens);
    const uint32_t max = layout.window_tokens == 0 ? 0 : std::min(tokens, kept_window_tokens(layout.window_tokens));
    const uint32_t min = std::min(tokens, std::max(layout.window_tokens, 1u) - 1);
    if (in_window < min || in_window > max) fail("a window of {} tokens instead of {} to {}", in_window, min, max);
    const uint64_t window_bytes = layout.window.bytes(in_window), bytes = sizeof numbers + window_bytes + layout.state_bytes;
    if (content.size() != bytes) fail("{} bytes of a state instead of {}", content.size(), bytes);
    const auto window = content.subspan(sizeof numbers, window_bytes), state = content.last(layout.state_bytes);
    return {tokens, in_window, {window.begin(), window.end()}, {state.begin(), state.end()}};
}

} // namespace tq
