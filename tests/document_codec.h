// turboquant.md implemented a second time, from the document alone and by other means: bytes, recursion, frexp, 64-bit division.
#pragma once
#include "model/kv/turboquant.h"
#include <vector>

namespace tq::test {

struct DocumentCodebook {
    std::vector<uint32_t> levels;     // of the magnitudes
    std::vector<uint32_t> thresholds; // between them on y^2 / |y|^2, fp32 bits, for head_dim 128
};

const DocumentCodebook& document_codebook(KvType type);

struct DocumentStored {
    std::vector<uint8_t> bytes;
    uint16_t scale;
};

DocumentStored document_encode(KvType type, std::span<const float> x, const Signs& signs);

} // namespace tq::test
