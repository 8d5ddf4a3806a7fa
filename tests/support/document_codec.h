// turboquant.md implemented a second time, from the document alone and by other means: bytes, recursion, frexp, fp32 divisions,
// and fp16 numbers found by comparing exact products.
#pragma once
#include "model/kv/codec.h"
#include <vector>

namespace tq::test {

struct DocumentCodebook {
    std::vector<uint32_t> levels;     // of the magnitudes
    std::vector<uint32_t> thresholds; // between them on y^2 / |y|^2, fp32 bits, for head_dim 128
};

// Of a TurboQuant type but tq8: for those with QJL, the codebook of one bit less.
const DocumentCodebook& document_codebook(KvType type);

struct DocumentStored {
    std::vector<uint8_t> codes;
    std::vector<uint16_t> scales;
};

// What `codec` names is done as the document says; of its rotation the signs and the matrix are taken as given.
DocumentStored document_encode(const KvCodec& codec, std::span<const float> x);

// And back, in double.
std::vector<double> document_decode(const KvCodec& codec, const DocumentStored& stored);

} // namespace tq::test
