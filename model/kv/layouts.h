// Stored vectors in the layouts of other programs: one vector after another in bytes, little-endian.
#pragma once
#include "model/kv/codec.h"

namespace tq {

// planes:   any type: the cache's own bytes, first the words of the codes, then the fp16 scales of that vector.
// block68:  tq2 to tq6 and tq8: an fp32 norm, then head_dim indices of b bits, index j at bit j b of what follows (52 bytes
//           of tq3 and 68 of tq4 for head_dim 128). An index is the centroid's rank, the most negative first: with h = 2^(b-1), h
//           + i for level L_i and h - 1 - i for -L_i.
// bytes132: the same types: a byte per index, then the fp32 norm.
// ggml:     q8_0, q4_0: ggml's blocks of 32, an fp16 scale and 32 signed bytes (34), or 16 bytes with
//           channel i in the low and i + 16 in the high half of byte i (18).
enum class KvLayout : uint32_t { planes, block68, bytes132, ggml };
inline constexpr auto kv_layout_names = std::array{"planes", "block68", "bytes132", "ggml"};
constexpr const char* name(KvLayout layout) { return kv_layout_names[uint32_t(layout)]; }
KvLayout parse_kv_layout(std::string_view text); // throws Error

// Returns the level units in one standard deviation of a rotated component: the thresholds of a codebook are the midpoints of
// its levels divided by it. tq8's levels follow the vector's largest component, so there it is 64 by convention.
double level_units(uint32_t bits);

// The norm of block68 and bytes132 multiplies the centroids L / (level_units sqrt(head_dim)) of vectors of length 1: scale *
// level_units * sqrt(head_dim / gain). It is the best by the scale rule, some percent off the vector's length. The centroids
// are our integer levels, not the real numbers of the published tables, from which they differ by less than 0.01 standard
// deviations up to 4 bits.

bool has_layout(KvType type, KvLayout layout);
// Throws Error if the type has no such layout.
void require_layout(KvType type, KvLayout layout);

// Returns the size in bytes of a vector.
uint32_t layout_bytes(KvLayout layout, KvType type, uint32_t head_dim);

// bytes[layout_bytes] = a stored vector. A vector that is not finite has a NaN for its norm.
void export_vector(const KvCodec& codec, KvLayout layout, std::span<uint8_t> bytes, std::span<const uint32_t> codes,
                   std::span<const uint16_t> scales);

// The exact reverse: codes and scales of the bytes from export_vector. A norm from another program becomes the nearest fp16
// scale. Throws Error if an index is not valid for the type, or a norm or scale is negative, beyond fp16 or not finite; a
// NaN norm or scale is accepted if `allow_nonfinite`.
void import_vector(const KvCodec& codec, KvLayout layout, std::span<uint32_t> codes, std::span<uint16_t> scales,
                   std::span<const uint8_t> bytes, bool allow_nonfinite = false);

} // namespace tq
