// The trellises of turboquant.md, written only from the document: every path is kept with its cost and its word, and the one of
// least cost wins.
#pragma once
#include "model/kv/types.h"
#include <span>
#include <vector>

namespace tq::test {

// The codes of y[d] with |y|^2 = norm2; `unit` is the fp16 number that the section calls u.
std::vector<uint32_t> document_trellis_codes(KvType type, std::span<const float> y, float unit);

// The levels of codes[d].
std::vector<int> document_trellis_levels(KvType type, const std::vector<uint32_t>& codes);

} // namespace tq::test
