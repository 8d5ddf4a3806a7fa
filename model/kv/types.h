// The types of a KV cache, their bytes, and the composition of a cache from them. turboquant.md defines the content of the
// bytes.
#pragma once
#include "shaders/kv_types.h"
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// The numbers are those of shaders/kv_types.h.
enum class KvType : uint32_t {
    f32 = KV_F32,
    f16 = KV_F16,
    bf16 = KV_BF16,
    tq2 = KV_TURBOQUANT_TYPE(2u), // TurboQuant: rotated, Lloyd-Max levels
    tq3 = KV_TURBOQUANT_TYPE(3u),
    tq4 = KV_TURBOQUANT_TYPE(4u),
    tq5 = KV_TURBOQUANT_TYPE(5u),
    tq6 = KV_TURBOQUANT_TYPE(6u),
    tq8 = KV_TURBOQUANT_TYPE(8u),
    tq2t = KV_TRELLIS_TYPE(2u), // trellis-coded levels
    tq3t = KV_TRELLIS_TYPE(3u),
    tq4t = KV_TRELLIS_TYPE(4u),
    // Unequal bits, for keys: 6, 5, 3 and 2 for quarters of the channels, those that RoPE turns slowest first; 7, 6, 4 and 3.
    tq4u = KV_UNEQUAL_TYPE(4u),
    tq5u = KV_UNEQUAL_TYPE(5u),
    q8_0 = KV_BLOCKS_TYPE(8u), // ggml's blocks of 32
    q4_0 = KV_BLOCKS_TYPE(4u),
};

struct KvTypeName {
    KvType type;
    const char* name;
};

// Every type, plain ones first.
inline constexpr auto kv_types = std::array{
    KvTypeName{KvType::f32, "f32"},   KvTypeName{KvType::f16, "f16"},   KvTypeName{KvType::bf16, "bf16"},
    KvTypeName{KvType::tq8, "tq8"},   KvTypeName{KvType::tq6, "tq6"},   KvTypeName{KvType::tq5, "tq5"},
    KvTypeName{KvType::tq4, "tq4"},   KvTypeName{KvType::tq3, "tq3"},   KvTypeName{KvType::tq2, "tq2"},
    KvTypeName{KvType::tq4t, "tq4t"}, KvTypeName{KvType::tq3t, "tq3t"}, KvTypeName{KvType::tq2t, "tq2t"},
    KvTypeName{KvType::tq5u, "tq5u"}, KvTypeName{KvType::tq4u, "tq4u"}, KvTypeName{KvType::q8_0, "q8_0"},
    KvTypeName{KvType::q4_0, "q4_0"},
};

const char* name(KvType type);

// Throws an Error that lists the names when `text` is neither one of them nor a former name.
KvType parse_kv_type(std::string_view text);

// A name that cache types or presets had, and the one that takes its place.
struct FormerName {
    std::string_view name, now;
};
inline constexpr auto former_kv_types = std::array{
    FormerName{"tq4q", "tq4"},   FormerName{"tq3q", "tq3"}, FormerName{"tq2q", "tq2"},  FormerName{"q8_0r", "q8_0"},
    FormerName{"q4_0r", "tq4t"}, FormerName{"a8", "tq8"},   FormerName{"a6", "tq6"},    FormerName{"a4", "tq4"},
    FormerName{"a3", "tq3"},     FormerName{"a2", "tq2"},   FormerName{"tq3u", "tq3t"}, // and a4_32, a4_64, a4_128 as a4, and so
                                                                                        // on
};
// Returns the entry for a former name of a type, or null.
const FormerName* find_former_type(std::string_view text);

constexpr uint32_t family(KvType t) { return KV_FAMILY(uint32_t(t)); }
constexpr bool is_turboquant(KvType t) { return family(t) == KV_TURBOQUANT; } // these are stored after the rotation
constexpr bool is_coded(KvType t) { return KV_IS_CODED(uint32_t(t)); }        // codes and scales rather than plain values
constexpr bool is_trellis(KvType t) { return KV_TRELLIS(uint32_t(t)) != 0; }  // a level depends on the codes before its own
constexpr bool is_unequal(KvType t) { return KV_UNEQUAL(uint32_t(t)) != 0; }  // bits by quarters (KV_QUARTER_BITS)
constexpr uint32_t code_bits(KvType t) { return KV_BITS(uint32_t(t)); }       // for a coded type
// Bits of a magnitude at a place of a vector of a TurboQuant type without a trellis. The place matters only if bits are unequal.
constexpr uint32_t magnitude_bits(KvType t, size_t place = 0) {
    if (is_unequal(t)) return KV_QUARTER_BITS(code_bits(t), place % KV_QUARTERS) - 1;
    return code_bits(t) - 1;
}
// Returns the type of values beside keys of a type: unequal bits are for keys.
constexpr KvType values_beside(KvType t) { return KvType(uint32_t(t) & ~KV_UNEQUAL_BIT); }

// Return, for one vector, the number of 32-bit words of its codes (or plain values), of fp16 scales, and of bytes.
constexpr uint32_t code_words(KvType t, uint32_t head_dim) { return KV_WORDS(uint32_t(t), head_dim); }
constexpr uint32_t scale_count(KvType t, uint32_t head_dim) { return KV_SCALES(uint32_t(t), head_dim); }
constexpr uint32_t kv_vector_bytes(KvType t, uint32_t head_dim) {
    return code_words(t, head_dim) * 4 + scale_count(t, head_dim) * 2;
}

// The definition of the scale of a TurboQuant vector: turboquant.md, section "Scale".
enum class ScaleRule : uint32_t { norm = SCALE_NORM, least_squares = SCALE_LEAST_SQUARES, unbiased = SCALE_UNBIASED };
inline constexpr auto scale_rule_names = std::array{"norm", "least-squares", "unbiased"};
constexpr const char* name(ScaleRule r) { return scale_rule_names[uint32_t(r)]; }
ScaleRule parse_scale_rule(std::string_view text); // throws Error

enum class RotationKind : uint32_t { wht = ROTATION_WHT, haar = ROTATION_HAAR };
inline constexpr auto rotation_names = std::array{"wht", "haar"};
constexpr const char* name(RotationKind r) { return rotation_names[uint32_t(r)]; }
RotationKind parse_rotation(std::string_view text); // throws Error

} // namespace tq
