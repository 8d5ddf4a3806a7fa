// A record of the prefix cache with a slot's window and states (SavedSlot). It belongs to the page with which the slot's tokens
// end. The content of such a file (page_file.h): tokens and tokens of the window, 32 bits each, the window (window_layout()), and
// the recurrent states (CacheVectors::state_bytes()). Untrusted until checked.
#pragma once
#include "model/cache.h"

namespace tq {

// The sizes of the windows and states of a cache's slots.
struct StateLayout {
    PageLayout window; // window_layout()
    uint32_t window_tokens = 0;
    uint64_t state_bytes = 0;

    explicit StateLayout(const Cache& cache);
    uint64_t max_bytes() const; // of a record's content
};

std::vector<std::byte> state_content(const SavedSlot& saved);

// Returns the window and states that a slot of `tokens` tokens had. Throws an Error with the reason if the content lacks them, or
// is not exactly what such a slot needs.
SavedSlot read_state(std::span<const std::byte> content, uint32_t tokens, const StateLayout& layout);

} // namespace tq
