// The trellises of turboquant.md, from the document alone: every path is kept with its cost and its word, and the least of them
// wins.
#pragma once
#include "model/kv/types.h"
#include <span>
#include <vector>

namespace tq::test {

// Codes of y[d] with |y|^2 = norm2, `unit` the fp16 number that the section calls u.
std::vector<uint32_t> document_trellis_codes(KvType type, std::span<const float> y, float unit);

// The levels of codes[d].
std::vector<int> document_trellis_levels(KvType type, const std::vector<uint32_t>& codes);

} // namespace tq::test
