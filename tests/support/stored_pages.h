// Pages of one cache as the source of another.
#pragma once
#include "model/cache.h"

namespace tq {

// Reads the pages of a slot; `from` must outlive it.
inline PageSource pages_of_slot(const Cache& from, uint32_t slot) {
    return [&from, slot](uint32_t position, std::span<std::byte> bytes) {
        from.read_page(from.table(slot)[position / page_tokens], from.page_layout().tokens(bytes.size()), bytes);
    };
}

} // namespace tq
