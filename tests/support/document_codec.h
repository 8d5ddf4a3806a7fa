// A second implementation of turboquant.md, written only from the document and by other means: bytes, recursion, frexp, fp32
// divisions, and fp16 numbers found by comparing exact products.
#pragma once
#include "model/kv/codec.h"
#include <vector>

namespace tq::test {

struct DocumentCodebook {
    std::vector<uint32_t> levels;     // of the magnitudes
    std::vector<uint32_t> thresholds; // between them on y^2 / |y|^2, fp32 bits, for head_dim 128
};

// The codebook of types of 2 to 7 bits. Only a quarter of tq5u has 7 bits.
const DocumentCodebook& document_codebook(KvType type);

struct DocumentStored {
    std::vector<uint8_t> codes;
    std::vector<uint16_t> scales;
};

// Encodes as the document specifies, with the type, rule and kind of rotation of `codec`, and its signs or matrix.
DocumentStored document_encode(const KvCodec& codec, std::span<const float> x);

// Decodes, in double.
std::vector<double> document_decode(const KvCodec& codec, const DocumentStored& stored);

} // namespace tq::test
