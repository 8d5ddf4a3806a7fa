// The content of a cache's slot outside the cache: its pages one by one, and its window and states.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tq {

// Content of a slot of `tokens` tokens beside its pages: its full-precision window, which holds its last tokens
// (CacheVectors::read_window()), and its recurrent states (read_state()). Empty if it has neither.
struct SavedSlot {
    uint32_t tokens = 0, window_tokens = 0;
    std::vector<std::byte> window = {}, state = {};

    uint64_t bytes() const { return window.size() + state.size(); }
};

// Writes the bytes of the tokens from `position` on, which are in one page (model/kv/page_layout.h).
using PageSource = std::function<void(uint32_t position, std::span<std::byte> bytes)>;

} // namespace tq
