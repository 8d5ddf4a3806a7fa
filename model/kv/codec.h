// The codec of the KV cache: one head vector to its stored bytes and back, bit for bit as turboquant.md defines it and
// shaders/kv_append.comp implements it.
#pragma once
#include "model/kv/rotation.h"

namespace tq {

// The storage of the keys or the values of one layer.
struct KvCodec {
    KvType type = KvType::tq4;
    ScaleRule scale_rule = ScaleRule::unbiased; // for TurboQuant types
    Rotation rotation;                          // for TurboQuant types; its head_dim is every vector's length

    uint32_t head_dim() const { return rotation.head_dim; }
    uint32_t words() const { return code_words(type, head_dim()); }
    uint32_t scales() const { return scale_count(type, head_dim()); }
};

// An fp16 NaN. If a vector has a NaN or infinite element, all its scales are this, and its codes are those of zeros.
inline constexpr uint16_t nonfinite_scale = 0x7e00;

// codes[words] and scales[scales] = the encoded x[head_dim]. Plain types store x itself.
void encode(const KvCodec& codec, std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x);

// y[head_dim] = the stored vector in the cache's own space: rotated, if the type is stored rotated.
void decode_stored(const KvCodec& codec, std::span<float> y, std::span<const uint32_t> codes, std::span<const uint16_t> scales);

// x[head_dim] = the decoded vector; its bits are the same on every device (shaders/kv_decode.comp).
void decode(const KvCodec& codec, std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales);

// Whether the stored vector is finite; false for every vector whose input was not.
bool is_finite(const KvCodec& codec, std::span<const uint32_t> codes, std::span<const uint16_t> scales);

// Returns code i of a vector of head_dim codes of `bits` bits each, as turboquant.md packs them.
uint32_t unpack_code(std::span<const uint32_t> words, uint32_t bits, size_t head_dim, size_t i);
// words = codes[head_dim], packed.
void pack_codes(std::span<uint32_t> words, uint32_t bits, std::span<const uint32_t> codes);
// The same for a type: codes[head_dim], which of unequal bits have as many as KV_QUARTER_BITS says.
void unpack_codes(KvType type, std::span<uint32_t> codes, std::span<const uint32_t> words);
void pack_codes(KvType type, std::span<uint32_t> words, std::span<const uint32_t> codes);

} // namespace tq
